import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A member of a crowd that locks with Redisson's RLock.
 *
 * <p>RedissonPeer SERVER NAME TTL_MS count FILE ROUNDS | hold
 */
public final class RedissonPeer {
    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(arguments[2]));
        config.useSingleServer()
            .setAddress("redis://" + arguments[0])
            .setConnectionMinimumIdleSize(1)
            .setConnectionPoolSize(4);
        RedissonClient client = Redisson.create(config);
        RLock lock = client.getLock(arguments[1]);
        if (arguments[3].equals("hold")) {
            lock.lock();
            // A second hold of the same thread.
            lock.lock();
            lock.unlock();
            System.out.println("holding");
            System.in.read();
            lock.unlock();
        } else {
            Path file = Path.of(arguments[4]);
            for (int round = 0; round < Integer.parseInt(arguments[5]); round++) {
                lock.lock();
                int count = Integer.parseInt(Files.readString(file).trim());
                Thread.sleep(1);
                Files.writeString(file, String.valueOf(count + 1));
                lock.unlock();
            }
        }
        client.shutdown(0, 1, TimeUnit.SECONDS);
    }
}
