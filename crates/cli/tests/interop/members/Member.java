// A member of a crowd, with Curator's recipes: takes its turn over and over, until its stdin ends.
//
// Arguments: the server with its chroot, the lock's path, the recipe, how many threads, the book, and how many milliseconds a turn
// takes. What is done in a turn is what the members in Rust and Python do: see `Book` and book.rs.

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;

public final class Member {
    private static volatile boolean ends;

    private final CuratorFramework curator;
    private final String path;
    private final Path book;
    private final long work;

    private Member(CuratorFramework curator, String[] arguments) {
        this.curator = curator;
        path = arguments[1];
        book = Path.of(arguments[4]);
        work = Long.parseLong(arguments[5]);
    }

    public static void main(String[] arguments) throws Exception {
        CuratorFramework curator = CuratorFrameworkFactory.builder()
                .connectString(arguments[0])
                .sessionTimeoutMs(4000)
                .connectionTimeoutMs(4000)
                .retryPolicy(new RetryOneTime(100))
                .build();
        curator.start();
        curator.blockUntilConnected();
        int threads = Integer.parseInt(arguments[3]);
        CountDownLatch ended = new CountDownLatch(threads);
        for (int number = 0; number < threads; number++) {
            Member member = new Member(curator, arguments);
            String who = "java-" + ProcessHandle.current().pid() + "-" + number;
            Thread thread = new Thread(() -> {
                while (!ends) {
                    try {
                        member.turn(arguments[2], who);
                    } catch (Exception error) {
                        // A member of a crowd that is being hurt: the next try is a new one.
                        System.err.println(who + ": " + error);
                    }
                }
                ended.countDown();
            });
            thread.setDaemon(true);
            thread.start();
        }
        while (System.in.read() >= 0) {}
        ends = true;
        ended.await(10, TimeUnit.SECONDS);
        curator.close();
        System.exit(0);
    }

    private void turn(String recipe, String who) throws Exception {
        switch (recipe) {
            case "mutex":
                InterProcessMutex mutex = new InterProcessMutex(curator, path);
                mutex.acquire();
                try {
                    work(who, 'w', first());
                } finally {
                    mutex.release();
                }
                break;
            case "read":
            case "write":
                InterProcessReadWriteLock both = new InterProcessReadWriteLock(curator, path);
                boolean reads = recipe.equals("read");
                InterProcessMutex one = reads ? both.readLock() : both.writeLock();
                one.acquire();
                try {
                    // Readers overlap, so their identities are in no order.
                    work(who, reads ? 'r' : 'w', reads ? 0 : first());
                } finally {
                    one.release();
                }
                break;
            case "latch":
                try (LeaderLatch latch = new LeaderLatch(curator, path, who)) {
                    latch.start();
                    while (!latch.await(100, TimeUnit.MILLISECONDS)) {
                        if (ends) {
                            return;
                        }
                    }
                    work(who, 'w', first());
                }
                break;
            case "selector":
                lead(who);
                break;
            default:
                throw new IllegalArgumentException(recipe);
        }
    }

    private void lead(String who) throws Exception {
        CountDownLatch led = new CountDownLatch(1);
        LeaderSelector selector = new LeaderSelector(curator, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework client) throws Exception {
                try {
                    work(who, 'w', first());
                } finally {
                    led.countDown();
                }
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {
                super.stateChanged(client, state);
            }
        });
        selector.start();
        while (!led.await(100, TimeUnit.MILLISECONDS) && !ends) {}
        selector.close();
    }

    /** The identity of the first of the queue, which is ours while we hold. */
    private long first() throws Exception {
        List<String> nodes = curator.getChildren().forPath(path);
        nodes.sort(Comparator.comparing(node -> node.substring(node.length() - 10)));
        return curator.checkExists().forPath(path + "/" + nodes.get(0)).getCzxid();
    }

    private void work(String who, char mode, long token) throws IOException, InterruptedException {
        List<String> before = Files.readAllLines(book, StandardCharsets.UTF_8);
        note("+ " + who + " " + mode + " " + token);
        try {
            Thread.sleep(work);
            if (mode == 'w') {
                long count = before.stream().filter(line -> line.startsWith("=")).count();
                note("= " + who + " " + (count + 1));
            }
        } finally {
            // Also when a selector that is closed, or has lost its connection, interrupts it: it leaves before it releases.
            note("- " + who + " " + mode);
        }
    }

    private void note(String line) throws IOException {
        // An interrupt does not end this one's writes.
        try (FileOutputStream end = new FileOutputStream(book.toFile(), true)) {
            end.write((line + "\n").getBytes(StandardCharsets.UTF_8));
        }
    }
}
