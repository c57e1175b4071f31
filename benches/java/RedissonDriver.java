// Drives Redisson's RLock for the runner, through one RedissonClient.

import java.util.List;
import java.util.concurrent.Semaphore;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public final class RedissonDriver extends Driver {
    private final RedissonClient redisson;

    private RedissonDriver(String server) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + server);
        redisson = Redisson.create(config);
    }

    public static void main(String[] arguments) throws Exception {
        String version = Redisson.class.getPackage().getImplementationVersion();
        new RedissonDriver(arguments[0]).serve("Redisson " + version);
    }

    @Override
    Held lock(String name) {
        RLock lock = redisson.getLock(name);
        return new Held() {
            @Override
            public void acquire() {
                lock.lock();
            }

            @Override
            public void release() {
                lock.unlock();
            }
        };
    }

    /** Who was refused waits at a semaphore until it is told of a release. Who is not answered yet waits elsewhere. */
    @Override
    boolean allWait(List<Thread> crowd, int failed) throws InterruptedException {
        long wait = crowd.stream().filter(RedissonDriver::waits).count();
        if (wait < crowd.size() - failed) {
            // Each look stops all threads.
            Thread.sleep(20);
            return false;
        }
        return true;
    }

    private static boolean waits(Thread thread) {
        if (thread.getState() != Thread.State.TIMED_WAITING && thread.getState() != Thread.State.WAITING) {
            return false;
        }
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (frame.getClassName().equals(Semaphore.class.getName())) {
                return true;
            }
        }
        return false;
    }
}
