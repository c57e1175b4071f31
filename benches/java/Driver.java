// What the drivers in Java share: one order in JSON on each line of stdin, one answer on each line of stdout.
//
// One client, and one lock and one thread for each waiter, as between processes. The definitions are those of
// src/drivers/contender.rs: the clock of a hand-over starts when all waiters are known to wait.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
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

abstract class Driver {
    private static final long STACK_BYTES = 128 * 1024;

    private final String run = "/bench-" + UUID.randomUUID().toString().substring(0, 8);

    /** A lock for one thread. */
    interface Held {
        void acquire() throws Exception;

        void release() throws Exception;
    }

    abstract Held lock(String name);

    /** Whether all of the crowd wait, but so many that have failed. */
    abstract boolean allWait(List<Thread> crowd, int failed) throws Exception;

    /** Makes what a lock of this name needs. */
    void prepare(String name) throws Exception {}

    /** Obeys until the runner closes the pipe. */
    void serve(String version) throws IOException {
        say("{\"version\":\"" + version + ", Java " + System.getProperty("java.version") + "\"}");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = obey(line);
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
        Held lock = lock(run + "-alone");
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
        String name = run + "-queue";
        long[] gaps = new long[waiters * repeats];
        int done = 0;
        double enqueue = 0;
        AtomicInteger failed = new AtomicInteger();
        AtomicReference<String> first = new AtomicReference<>();
        for (int repeat = 0; repeat < repeats; repeat++) {
            Held holder = lock(name);
            holder.acquire();
            int failedBefore = failed.get();
            long began = System.nanoTime();
            long[] grants = new long[waiters];
            AtomicInteger granted = new AtomicInteger();
            List<Thread> crowd = new ArrayList<>(waiters);
            for (int waiter = 0; waiter < waiters; waiter++) {
                Thread thread = new Thread(null, () -> {
                    try {
                        Held lock = lock(name);
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
            while (!allWait(crowd, failed.get() - failedBefore)) {
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
        List<Held> own = new ArrayList<>(locks);
        for (int number = 0; number < locks; number++) {
            String name = run + "-own-" + number;
            own.add(lock(name));
            prepare(name);
        }
        long began = System.nanoTime();
        long end = began + milliseconds * 1_000_000L;
        for (Held lock : own) {
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
