// Drives Curator's InterProcessMutex for the runner, through one CuratorFramework and so one session.

import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

public final class CuratorDriver extends Driver {
    private static final int SESSION_TIMEOUT_MS = 30_000;
    private static final int CONNECT_TIMEOUT_MS = 10_000;
    private static final Pattern TOTAL = Pattern.compile("Total watches:(\\d+)");

    private final CuratorFramework curator;
    private final String host;
    private final int port;

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
        new CuratorDriver(arguments[0], arguments[1]).serve("Curator " + arguments[2]);
    }

    @Override
    void prepare(String name) throws Exception {
        curator.createContainers(name);
    }

    @Override
    Held lock(String name) {
        InterProcessMutex lock = new InterProcessMutex(curator, name);
        return new Held() {
            @Override
            public void acquire() throws Exception {
                lock.acquire();
            }

            @Override
            public void release() throws Exception {
                lock.release();
            }
        };
    }

    /** Asks the server for its watches, beside the session. */
    @Override
    boolean allWait(List<Thread> crowd, int failed) throws IOException {
        try (Socket socket = new Socket(host, port)) {
            socket.getOutputStream().write("wchs".getBytes(StandardCharsets.US_ASCII));
            String answer = new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            Matcher total = TOTAL.matcher(answer);
            if (!total.find()) {
                throw new IOException("the server said to wchs: " + answer);
            }
            return Integer.parseInt(total.group(1)) >= crowd.size() - failed;
        }
    }
}
