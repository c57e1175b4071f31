import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.concurrent.locks.Lock;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.integration.jdbc.lock.DefaultLockRepository;
import org.springframework.integration.jdbc.lock.JdbcLockRegistry;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/**
 * A member of a crowd that locks with ShedLock's JDBC template provider, or with Spring
 * Integration's JDBC lock registry.
 *
 * <p>JdbcPeer KIND SERVER NAME TTL_MS count FILE ROUNDS | hold
 */
public final class JdbcPeer {
    interface Held {
        void free();
    }

    interface Door {
        Held take() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        String kind = arguments[0];
        String server = arguments[1];
        DriverManagerDataSource source = kind.startsWith("postgres")
            ? new DriverManagerDataSource("jdbc:postgresql://" + server + "/postgres", "postgres", "")
            : new DriverManagerDataSource("jdbc:mariadb://" + server + "/test", "root", "");
        Duration ttl = Duration.ofMillis(Long.parseLong(arguments[3]));
        Door door = kind.endsWith("+shedlock")
            ? shedLock(source, arguments[2], ttl)
            : spring(source, arguments[2]);
        if (arguments[4].equals("hold")) {
            Held held = door.take();
            System.out.println("holding");
            System.in.read();
            held.free();
        } else {
            Path file = Path.of(arguments[5]);
            for (int round = 0; round < Integer.parseInt(arguments[6]); round++) {
                Held held = door.take();
                int count = Integer.parseInt(Files.readString(file).trim());
                Thread.sleep(1);
                Files.writeString(file, String.valueOf(count + 1));
                held.free();
            }
        }
        System.exit(0);
    }

    /** It does not wait by itself. */
    private static Door shedLock(DriverManagerDataSource source, String name, Duration ttl) {
        JdbcTemplateLockProvider provider = new JdbcTemplateLockProvider(
            JdbcTemplateLockProvider.Configuration.builder()
                .withJdbcTemplate(new JdbcTemplate(source))
                .usingDbTime()
                .build());
        return () -> {
            while (true) {
                Optional<SimpleLock> lock =
                    provider.lock(new LockConfiguration(Instant.now(), name, ttl, Duration.ZERO));
                if (lock.isPresent()) {
                    return lock.get()::unlock;
                }
                Thread.sleep(10);
            }
        };
    }

    private static Door spring(DriverManagerDataSource source, String name) {
        DefaultLockRepository repository = new DefaultLockRepository(source);
        repository.setTransactionManager(new DataSourceTransactionManager(source));
        repository.afterPropertiesSet();
        repository.afterSingletonsInstantiated();
        JdbcLockRegistry registry = new JdbcLockRegistry(repository);
        registry.setIdleBetweenTries(Duration.ofMillis(10));
        Lock lock = registry.obtain(name);
        return () -> {
            lock.lock();
            return lock::unlock;
        };
    }
}
