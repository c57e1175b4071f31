// Drives Curator's InterProcessMutex for the runner: one order in JSON on each line of stdin, one answer on each line of stdout.
//
// One CuratorFramework, so one session; one InterProcessMutex and one thread for each waiter, as between processes. The
// definitions are those of src/drivers/contender.rs: the clock of a hand-over starts when all waiters have their watch at the
// server.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

public final class CuratorDriver {
    private static final int SESSION_TIMEOUT_MS = 30_000;
    private static final int CONNECT_TIMEOUT_MS = 10_000;
    private static final long STACK_BYTES = 128 * 1024;
    private static final Pattern TOTAL = Pattern.compile("Total watches:(\\d+)");

    private final CuratorFramework curator;
    private final String host;
    private final int port;
    private final String run = "/bench-" + UUID.randomUUID().toString().substring(0, 8);

    private CuratorDriver(String server, String aside) throws InterruptedException {
        curator = CuratorFrameworkFactory.builder()
                .connectString(server)
                .sessionTimeoutMs(SESSION_TIMEOUT_MS)
                .connectionTimeoutMs(CONNECT_TIMEOUT_MS)
                .retryPolicy(new ExponentialBackoffRetry(1000, 3))
                .build();
        curator.start();
        curator.blockUntilConnected();
        int colon = aside.lastIndexOf(':');
        host = aside.substring(0, colon);
        port = Integer.parseInt(aside.substring(colon + 1));
    }

    public static void main(String[] arguments) throws Exception {
        CuratorDriver driver = new CuratorDriver(arguments[0], arguments[1]);
        say("{\"version\":\"Curator " + arguments[2] + ", Java " + System.getProperty("java.version") + "\"}");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = driver.obey(line);
            } catch (Exception error) {
                answer = "{\"error\":" + quoted(error.toString()) + "}";
            }
            say(answer);
        }
        System.exit(0);
    }

    private String obey(String order) throws Exception {
        if (order.contains("\"do\":\"uncontended\"")) {
            return uncontended(number(order, "rounds"));
        }
        if (order.contains("\"do\":\"hand_over\"")) {
            return handOver(number(order, "waiters"), number(order, "repeats"));
        }
        if (order.contains("\"do\":\"independent\"")) {
            return independent(number(order, "locks"), number(order, "milliseconds"));
        }
        throw new IllegalArgumentException("unknown order: " + order);
    }

    private String uncontended(int rounds) throws Exception {
        InterProcessMutex lock = new InterProcessMutex(curator, run + "-alone");
        long[] times = new long[rounds];
        for (int round = 0; round < rounds; round++) {
            long began = System.nanoTime();
            lock.acquire();
            lock.release();
            times[round] = System.nanoTime() - began;
        }
        return "{" + figures(times) + "}";
    }

    private String handOver(int waiters, int repeats) throws Exception {
        String path = run + "-queue";
        long[] gaps = new long[waiters * repeats];
        int done = 0;
        double enqueue = 0;
        AtomicInteger failed = new AtomicInteger();
        AtomicReference<String> first = new AtomicReference<>();
        for (int repeat = 0; repeat < repeats; repeat++) {
            InterProcessMutex holder = new InterProcessMutex(curator, path);
            holder.acquire();
            int failedBefore = failed.get();
            long began = System.nanoTime();
            long[] grants = new long[waiters];
            AtomicInteger granted = new AtomicInteger();
            List<Thread> crowd = new ArrayList<>(waiters);
            for (int waiter = 0; waiter < waiters; waiter++) {
                Thread thread = new Thread(null, () -> {
                    try {
                        InterProcessMutex lock = new InterProcessMutex(curator, path);
                        lock.acquire();
                        grants[granted.getAndIncrement()] = System.nanoTime();
                        lock.release();
                    } catch (Throwable error) {
                        failed.incrementAndGet();
                        first.compareAndSet(null, error.toString());
                    }
                }, "waiter-" + waiter, STACK_BYTES);
                crowd.add(thread);
                thread.start();
            }
            while (watches() < waiters - (failed.get() - failedBefore)) {
                Thread.sleep(2);
            }
            enqueue += (System.nanoTime() - began) / 1e6;

            long last = System.nanoTime();
            holder.release();
            for (Thread thread : crowd) {
                thread.join();
            }
            long[] at = Arrays.copyOf(grants, granted.get());
            Arrays.sort(at);
            for (long grant : at) {
                gaps[done++] = grant - last;
                last = grant;
            }
        }
        String error = first.get() == null ? "" : ",\"error\":" + quoted(first.get());
        return String.format(Locale.ROOT, "{%s,\"enqueue_ms\":%.3f,\"failed\":%d%s}",
                figures(Arrays.copyOf(gaps, done)), enqueue / repeats, failed.get(), error);
    }

    private String independent(int locks, int milliseconds) throws Exception {
        AtomicLong taken = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<Thread> tasks = new ArrayList<>(locks);
        List<InterProcessMutex> own = new ArrayList<>(locks);
        for (int number = 0; number < locks; number++) {
            own.add(new InterProcessMutex(curator, run + "-own-" + number));
            curator.createContainers(run + "-own-" + number);
        }
        long began = System.nanoTime();
        long end = began + milliseconds * 1_000_000L;
        for (InterProcessMutex lock : own) {
            Thread thread = new Thread(() -> {
                try {
                    while (System.nanoTime() < end) {
                        lock.acquire();
                        lock.release();
                        taken.incrementAndGet();
                    }
                } catch (Throwable error) {
                    failure.compareAndSet(null, error);
                }
            });
            tasks.add(thread);
            thread.start();
        }
        for (Thread thread : tasks) {
            thread.join();
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        return String.format(Locale.ROOT, "{\"locks_per_s\":%.3f}", taken.get() / seconds);
    }

    /** How many watches the server holds, asked beside the session. */
    private int watches() throws IOException {
        try (Socket socket = new Socket(host, port)) {
            socket.getOutputStream().write("wchs".getBytes(StandardCharsets.US_ASCII));
            String answer = new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            Matcher total = TOTAL.matcher(answer);
            if (!total.find()) {
                throw new IOException("the server said to wchs: " + answer);
            }
            return Integer.parseInt(total.group(1));
        }
    }

    private static String figures(long[] nanos) {
        Arrays.sort(nanos);
        double sum = 0;
        for (long time : nanos) {
            sum += time;
        }
        return String.format(Locale.ROOT, "\"mean_us\":%.3f,\"p50_us\":%.3f,\"p99_us\":%.3f",
                nanos.length == 0 ? 0 : sum / nanos.length / 1e3, percentile(nanos, 0.50), percentile(nanos, 0.99));
    }

    private static double percentile(long[] sorted, double part) {
        if (sorted.length == 0) {
            return 0;
        }
        int rank = (int) Math.ceil(part * sorted.length);
        return sorted[Math.max(rank, 1) - 1] / 1e3;
    }

    private static int number(String order, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":(\\d+)").matcher(order);
        if (!found.find()) {
            throw new IllegalArgumentException("no " + name + " in " + order);
        }
        return Integer.parseInt(found.group(1));
    }

    private static String quoted(String text) {
        return '"' + text.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + '"';
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
