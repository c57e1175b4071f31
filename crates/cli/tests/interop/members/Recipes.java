// Curator's recipes, one after the other on the server that is named, and small parts of them beside ours.
//
// `all`: each recipe in a directory of its own; prints `ok NAME` or `failed NAME: why` for each, and ends with 0 if all went well.
// `list mutex|selector|latch PATH`: prints what Curator reads of those who stand there, one in each line.
// `stand mutex|revocable|selector|latch PATH ID`: stands there, says `in` once it has what it wants, and leaves when its stdin ends,
// or, if it is revocable, when it is asked, and says so.
// `revoke NODE`: asks for the release of a node.

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.auth.DigestAuthenticationProvider;

public final class Recipes {
    private static final long SOON = 10;

    private final String server;
    private final CuratorFramework curator;
    private final ExecutorService others = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });

    private Recipes(String server) throws Exception {
        this.server = server;
        curator = client();
    }

    public static void main(String[] arguments) throws Exception {
        Recipes recipes = new Recipes(arguments[0]);
        boolean isWell = true;
        switch (arguments[1]) {
            case "all":
                isWell = recipes.all();
                break;
            case "list":
                recipes.list(arguments[2], arguments[3]);
                break;
            case "stand":
                recipes.stand(arguments[2], arguments[3], arguments[4]);
                break;
            case "revoke":
                Revoker.attemptRevoke(recipes.curator, arguments[2]);
                break;
            default:
                throw new IllegalArgumentException(arguments[1]);
        }
        recipes.curator.close();
        System.exit(isWell ? 0 : 1);
    }

    private CuratorFramework client() throws Exception {
        return client(server);
    }

    private CuratorFramework client(String server) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(server)
                .sessionTimeoutMs(4000)
                .connectionTimeoutMs(4000)
                .retryPolicy(new RetryOneTime(200))
                .build();
        client.start();
        check(client.blockUntilConnected((int) SOON, TimeUnit.SECONDS), "no connection");
        return client;
    }

    private void list(String recipe, String path) throws Exception {
        if (recipe.equals("mutex")) {
            for (String node : new InterProcessMutex(curator, path).getParticipantNodes()) {
                System.out.println(node);
            }
            return;
        }
        Collection<Participant> all = recipe.equals("latch")
                ? new LeaderLatch(curator, path).getParticipants()
                : new LeaderSelector(curator, path, new Nobody()).getParticipants();
        for (Participant one : all) {
            System.out.println((one.isLeader() ? "leader " : "waits ") + one.getId());
        }
    }

    private void stand(String recipe, String path, String id) throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        AutoCloseable standing;
        switch (recipe) {
            case "mutex":
            case "revocable":
                InterProcessMutex mutex = new InterProcessMutex(curator, path);
                if (recipe.equals("revocable")) {
                    mutex.makeRevocable(of -> asked.countDown());
                }
                mutex.acquire();
                standing = mutex::release;
                break;
            case "selector":
                CountDownLatch in = new CountDownLatch(1);
                CountDownLatch out = new CountDownLatch(1);
                LeaderSelector selector = new LeaderSelector(curator, path, new LeaderSelectorListenerAdapter() {
                    @Override
                    public void takeLeadership(CuratorFramework client) throws Exception {
                        in.countDown();
                        out.await();
                    }
                });
                selector.setId(id);
                selector.start();
                in.await();
                standing = () -> {
                    out.countDown();
                    selector.close();
                };
                break;
            case "latch":
                LeaderLatch latch = new LeaderLatch(curator, path, id);
                latch.start();
                latch.await();
                standing = latch;
                break;
            default:
                throw new IllegalArgumentException(recipe);
        }
        System.out.println("in");
        System.out.flush();
        if (recipe.equals("revocable")) {
            asked.await();
            System.out.println("asked");
        } else {
            while (System.in.read() >= 0) {}
        }
        standing.close();
    }

    private boolean all() {
        boolean isWell = true;
        isWell &= run("mutex", this::mutex);
        isWell &= run("mutex-crowd", this::mutexCrowd);
        isWell &= run("mutex-outlives-connection", this::mutexOutlivesConnection);
        isWell &= run("mutex-session-ends", this::mutexSessionEnds);
        isWell &= run("revocation", this::revocation);
        isWell &= run("read-write", this::readWrite);
        isWell &= run("multi-lock", this::multiLock);
        isWell &= run("semaphore-mutex", this::semaphoreMutex);
        isWell &= run("semaphore-v2", this::semaphore);
        isWell &= run("semaphore-shared-count", this::semaphoreWithCount);
        isWell &= run("leader-latch", this::latch);
        isWell &= run("leader-selector", this::selector);
        isWell &= run("shared-count", this::sharedCount);
        isWell &= run("atomic-long", this::atomicLong);
        isWell &= run("barrier", this::barrier);
        isWell &= run("double-barrier", this::doubleBarrier);
        isWell &= run("persistent-node", this::persistentNode);
        isWell &= run("ttl-node", this::ttlNode);
        isWell &= run("group-member", this::groupMember);
        isWell &= run("cache", this::cache);
        isWell &= run("persistent-watcher", this::persistentWatcher);
        isWell &= run("transaction", this::transaction);
        isWell &= run("container", this::container);
        isWell &= run("protected", this::protectedCreate);
        isWell &= run("acl", this::acl);
        isWell &= run("versions", this::versions);
        isWell &= run("deep-delete", this::deepDelete);
        return isWell;
    }

    private boolean run(String name, Callable<Void> recipe) {
        try {
            others.submit(recipe).get(60, TimeUnit.SECONDS);
            System.out.println("ok " + name);
            return true;
        } catch (ExecutionException error) {
            System.out.println("failed " + name + ": " + error.getCause());
            error.getCause().printStackTrace();
            return false;
        } catch (Exception error) {
            System.out.println("failed " + name + ": " + error);
            return false;
        }
    }

    private Void mutex() throws Exception {
        InterProcessMutex one = new InterProcessMutex(curator, "/recipes/mutex");
        InterProcessMutex other = new InterProcessMutex(curator, "/recipes/mutex");
        one.acquire();
        one.acquire();
        check(!otherwise(() -> other.acquire(300, TimeUnit.MILLISECONDS)), "two hold it");
        one.release();
        check(one.isAcquiredInThisProcess(), "the inner release let go");
        Future<Boolean> waiting = others.submit(() -> {
            boolean isIn = other.acquire(SOON, TimeUnit.SECONDS);
            other.release();
            return isIn;
        });
        eventually(() -> one.getParticipantNodes().size() == 2, "two participants");
        one.release();
        check(waiting.get(SOON, TimeUnit.SECONDS), "the waiter was not let in");
        eventually(() -> one.getParticipantNodes().isEmpty(), "nobody is left");
        return null;
    }

    private Void mutexCrowd() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        List<Future<Integer>> crowd = new ArrayList<>();
        for (int member = 0; member < 8; member++) {
            crowd.add(others.submit(() -> {
                try (CuratorFramework own = client()) {
                    InterProcessMutex mutex = new InterProcessMutex(own, "/recipes/crowd");
                    for (int turn = 0; turn < 25; turn++) {
                        mutex.acquire();
                        check(inside.incrementAndGet() == 1, "two are inside");
                        inside.decrementAndGet();
                        mutex.release();
                    }
                    return 25;
                }
            }));
        }
        int turns = 0;
        for (Future<Integer> one : crowd) {
            turns += one.get(40, TimeUnit.SECONDS);
        }
        check(turns == 200, "turns: " + turns);
        return null;
    }

    /** The client's own way to lose its connection and come back with the same session. */
    private Void mutexOutlivesConnection() throws Exception {
        try (Relay relay = new Relay(server); CuratorFramework own = client(relay.server)) {
            InterProcessMutex mutex = new InterProcessMutex(own, "/recipes/outlives");
            mutex.acquire();
            long session = own.getZookeeperClient().getZooKeeper().getSessionId();
            BlockingQueue<ConnectionState> states = states(own);
            relay.cut();
            await(states, ConnectionState.RECONNECTED);
            check(own.getZookeeperClient().getZooKeeper().getSessionId() == session, "another session");
            check(mutex.getParticipantNodes().size() == 1, "its node is gone");
            mutex.release();
        }
        return null;
    }

    private Void mutexSessionEnds() throws Exception {
        try (CuratorFramework own = client()) {
            InterProcessMutex lost = new InterProcessMutex(own, "/recipes/ends");
            lost.acquire();
            BlockingQueue<ConnectionState> states = states(own);
            end(own);
            await(states, ConnectionState.LOST);
            InterProcessMutex next = new InterProcessMutex(curator, "/recipes/ends");
            check(next.acquire(SOON, TimeUnit.SECONDS), "the next one was not let in");
            next.release();
            await(states, ConnectionState.RECONNECTED);
        }
        return null;
    }

    private Void revocation() throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        InterProcessMutex mutex = new InterProcessMutex(curator, "/recipes/revocable");
        mutex.makeRevocable(of -> asked.countDown());
        mutex.acquire();
        Revoker.attemptRevoke(curator, mutex.getParticipantNodes().iterator().next());
        check(asked.await(SOON, TimeUnit.SECONDS), "it was not asked");
        mutex.release();
        return null;
    }

    private Void readWrite() throws Exception {
        InterProcessReadWriteLock one = new InterProcessReadWriteLock(curator, "/recipes/both");
        InterProcessReadWriteLock other = new InterProcessReadWriteLock(curator, "/recipes/both");
        one.readLock().acquire();
        check(otherwise(() -> {
            boolean isIn = other.readLock().acquire(SOON, TimeUnit.SECONDS);
            other.readLock().release();
            return isIn;
        }), "readers do not share");
        check(!otherwise(() -> other.writeLock().acquire(300, TimeUnit.MILLISECONDS)), "a writer beside a reader");
        one.readLock().release();
        one.writeLock().acquire();
        one.readLock().acquire();
        one.writeLock().release();
        check(!otherwise(() -> other.writeLock().acquire(300, TimeUnit.MILLISECONDS)), "a writer beside a downgraded one");
        one.readLock().release();
        check(otherwise(() -> {
            boolean isIn = other.writeLock().acquire(SOON, TimeUnit.SECONDS);
            other.writeLock().release();
            return isIn;
        }), "no writer is let in");
        return null;
    }

    private Void multiLock() throws Exception {
        List<String> paths = Arrays.asList("/recipes/multi/a", "/recipes/multi/b");
        InterProcessMultiLock both = new InterProcessMultiLock(curator, paths);
        InterProcessMutex single = new InterProcessMutex(curator, paths.get(1));
        both.acquire();
        check(!otherwise(() -> single.acquire(300, TimeUnit.MILLISECONDS)), "one of them is free");
        both.release();
        check(single.acquire(SOON, TimeUnit.SECONDS), "one of them is held");
        check(!otherwise(() -> both.acquire(300, TimeUnit.MILLISECONDS)), "both although one is held");
        single.release();
        return null;
    }

    private Void semaphoreMutex() throws Exception {
        InterProcessSemaphoreMutex one = new InterProcessSemaphoreMutex(curator, "/recipes/plain");
        InterProcessSemaphoreMutex other = new InterProcessSemaphoreMutex(curator, "/recipes/plain");
        one.acquire();
        check(!other.acquire(300, TimeUnit.MILLISECONDS), "two hold it");
        one.release();
        check(other.acquire(SOON, TimeUnit.SECONDS), "it stays held");
        other.release();
        return null;
    }

    private Void semaphore() throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(curator, "/recipes/permits", 3);
        Collection<Lease> two = semaphore.acquire(2);
        Lease third = semaphore.acquire(SOON, TimeUnit.SECONDS);
        check(third != null, "a permit is left");
        check(semaphore.acquire(300, TimeUnit.MILLISECONDS) == null, "a permit too many");
        Future<Lease> waiting = others.submit(() -> semaphore.acquire(SOON, TimeUnit.SECONDS));
        Thread.sleep(200);
        semaphore.returnAll(two);
        Lease fourth = waiting.get(SOON, TimeUnit.SECONDS);
        check(fourth != null, "the waiter has no permit");
        semaphore.returnLease(third);
        semaphore.returnLease(fourth);
        return null;
    }

    private Void semaphoreWithCount() throws Exception {
        try (SharedCount limit = new SharedCount(curator, "/recipes/limit", 1)) {
            limit.start();
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(curator, "/recipes/limited", limit);
            Lease one = semaphore.acquire();
            check(semaphore.acquire(300, TimeUnit.MILLISECONDS) == null, "a permit too many");
            limit.setCount(2);
            Lease two = semaphore.acquire(SOON, TimeUnit.SECONDS);
            check(two != null, "the new limit is not seen");
            semaphore.returnLease(one);
            semaphore.returnLease(two);
        }
        return null;
    }

    private Void latch() throws Exception {
        try (CuratorFramework own = client()) {
            LeaderLatch one = new LeaderLatch(own, "/recipes/latch", "one");
            one.start();
            check(one.await(SOON, TimeUnit.SECONDS), "nobody leads");
            try (LeaderLatch two = new LeaderLatch(curator, "/recipes/latch", "two")) {
                two.start();
                check(!two.await(300, TimeUnit.MILLISECONDS), "two lead");
                check(two.getLeader().getId().equals("one"), "another leads");
                check(two.getParticipants().size() == 2, "participants");
                one.close();
                check(two.await(SOON, TimeUnit.SECONDS), "no hand-over");
            }
        }
        return null;
    }

    private Void selector() throws Exception {
        BlockingQueue<String> led = new LinkedBlockingQueue<>();
        List<LeaderSelector> all = new ArrayList<>();
        for (String id : Arrays.asList("one", "two", "three")) {
            LeaderSelector selector = new LeaderSelector(curator, "/recipes/selector", new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) throws Exception {
                    led.add(id);
                    Thread.sleep(50);
                }
            });
            selector.setId(id);
            selector.autoRequeue();
            selector.start();
            all.add(selector);
        }
        List<String> seen = new ArrayList<>();
        for (int turn = 0; turn < 9; turn++) {
            seen.add(led.poll(SOON, TimeUnit.SECONDS));
        }
        for (LeaderSelector selector : all) {
            selector.close();
        }
        check(seen.containsAll(Arrays.asList("one", "two", "three")), "led: " + seen);
        return null;
    }

    private Void sharedCount() throws Exception {
        try (SharedCount one = new SharedCount(curator, "/recipes/count", 1);
                SharedCount two = new SharedCount(curator, "/recipes/count", 1)) {
            one.start();
            two.start();
            one.setCount(42);
            eventually(() -> two.getCount() == 42, "the other one sees it");
            check(two.trySetCount(two.getVersionedValue(), 43), "it was not set");
            check(!one.trySetCount(one.getVersionedValue(), 44) || one.getCount() == 44, "neither set nor refused");
        }
        return null;
    }

    private Void atomicLong() throws Exception {
        List<Future<Integer>> crowd = new ArrayList<>();
        for (int member = 0; member < 4; member++) {
            crowd.add(others.submit(() -> {
                DistributedAtomicLong number = new DistributedAtomicLong(curator, "/recipes/number", new RetryOneTime(5));
                int done = 0;
                for (int turn = 0; turn < 25; turn++) {
                    done += number.increment().succeeded() ? 1 : 0;
                }
                return done;
            }));
        }
        long done = 0;
        for (Future<Integer> one : crowd) {
            done += one.get(40, TimeUnit.SECONDS);
        }
        long value = new DistributedAtomicLong(curator, "/recipes/number", new RetryOneTime(5)).get().postValue();
        check(value == done && done > 0, value + " of " + done);
        return null;
    }

    private Void barrier() throws Exception {
        DistributedBarrier barrier = new DistributedBarrier(curator, "/recipes/barrier");
        barrier.setBarrier();
        Future<Boolean> waiting = others.submit(() -> new DistributedBarrier(curator, "/recipes/barrier").waitOnBarrier(SOON, TimeUnit.SECONDS));
        Thread.sleep(200);
        check(!waiting.isDone(), "it did not wait");
        barrier.removeBarrier();
        check(waiting.get(SOON, TimeUnit.SECONDS), "it waits on");
        return null;
    }

    private Void doubleBarrier() throws Exception {
        List<Future<Boolean>> crowd = new ArrayList<>();
        for (int member = 0; member < 3; member++) {
            crowd.add(others.submit(() -> {
                DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(curator, "/recipes/double", 3);
                return barrier.enter(SOON, TimeUnit.SECONDS) && barrier.leave(SOON, TimeUnit.SECONDS);
            }));
        }
        for (Future<Boolean> one : crowd) {
            check(one.get(2 * SOON, TimeUnit.SECONDS), "one was not let through");
        }
        return null;
    }

    private Void persistentNode() throws Exception {
        try (CuratorFramework own = client();
                PersistentNode node = new PersistentNode(own, CreateMode.EPHEMERAL, false, "/recipes/kept/node", bytes("here"))) {
            node.start();
            check(node.waitForInitialCreate(SOON, TimeUnit.SECONDS), "it is not made");
            end(own);
            eventually(() -> {
                Stat stat = curator.checkExists().forPath("/recipes/kept/node");
                return stat != null && stat.getEphemeralOwner() == own.getZookeeperClient().getZooKeeper().getSessionId();
            }, "it is made again");
        }
        return null;
    }

    private Void ttlNode() throws Exception {
        String path = "/recipes/ttl";
        curator.create().withTtl(60_000).creatingParentsIfNeeded().withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(path);
        check(curator.checkExists().forPath(path) != null, "it is not there");
        try (PersistentTtlNode node = new PersistentTtlNode(curator, "/recipes/ttl-kept", 60_000, bytes("here"))) {
            node.start();
            check(node.waitForInitialCreate(SOON, TimeUnit.SECONDS), "it is not made");
        }
        return null;
    }

    private Void groupMember() throws Exception {
        try (GroupMember one = new GroupMember(curator, "/recipes/group", "one");
                GroupMember two = new GroupMember(curator, "/recipes/group", "two", bytes("payload"))) {
            one.start();
            two.start();
            eventually(() -> one.getCurrentMembers().size() == 2, "they see each other");
        }
        return null;
    }

    private Void cache() throws Exception {
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        curator.create().orSetData().creatingParentsIfNeeded().forPath("/recipes/cache/old", bytes("1"));
        try (CuratorCache cache = CuratorCache.build(curator, "/recipes/cache")) {
            cache.listenable().addListener(CuratorCacheListener.builder()
                    .forCreates(node -> told.add("new " + node.getPath()))
                    .forChanges((before, after) -> told.add("changed " + after.getPath()))
                    .forDeletes(node -> told.add("gone " + node.getPath()))
                    .build());
            cache.start();
            await(told, "new /recipes/cache/old");
            curator.create().forPath("/recipes/cache/old/below", bytes("2"));
            await(told, "new /recipes/cache/old/below");
            curator.setData().forPath("/recipes/cache/old/below", bytes("3"));
            await(told, "changed /recipes/cache/old/below");
            curator.delete().forPath("/recipes/cache/old/below");
            await(told, "gone /recipes/cache/old/below");
        }
        return null;
    }

    private Void persistentWatcher() throws Exception {
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        try (Relay relay = new Relay(server);
                CuratorFramework own = client(relay.server);
                PersistentWatcher watcher = new PersistentWatcher(own, "/recipes/watched", true)) {
            watcher.getListenable().addListener(event -> told.add(event.getType() + " " + event.getPath()));
            watcher.start();
            Thread.sleep(200);
            curator.create().creatingParentsIfNeeded().forPath("/recipes/watched/a/b");
            await(told, "NodeCreated /recipes/watched/a/b");
            BlockingQueue<ConnectionState> states = states(own);
            relay.cut();
            await(states, ConnectionState.RECONNECTED);
            Thread.sleep(200);
            curator.setData().forPath("/recipes/watched/a/b", bytes("x"));
            await(told, "NodeDataChanged /recipes/watched/a/b");
        }
        return null;
    }

    private Void transaction() throws Exception {
        curator.create().orSetData().creatingParentsIfNeeded().forPath("/recipes/together/a", bytes("1"));
        CuratorOp create = curator.transactionOp().create().forPath("/recipes/together/b", bytes("2"));
        CuratorOp check = curator.transactionOp().check().withVersion(99).forPath("/recipes/together/a");
        CuratorOp set = curator.transactionOp().setData().forPath("/recipes/together/a", bytes("3"));
        CuratorOp delete = curator.transactionOp().delete().forPath("/recipes/together/b");
        try {
            curator.transaction().forOperations(create, check);
            throw new AssertionError("the check is passed over");
        } catch (KeeperException.BadVersionException error) {
            check(curator.checkExists().forPath("/recipes/together/b") == null, "half of it is done");
        }
        check(curator.transaction().forOperations(create, set, delete).size() == 3, "results");
        check(new String(curator.getData().forPath("/recipes/together/a"), StandardCharsets.UTF_8).equals("3"), "nothing is set");
        return null;
    }

    private Void container() throws Exception {
        curator.createContainers("/recipes/box/inner");
        Stat stat = curator.checkExists().forPath("/recipes/box/inner");
        check(stat != null, "it is not there");
        curator.create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/recipes/box/inner/n-");
        return null;
    }

    private Void protectedCreate() throws Exception {
        String path = curator.create()
                .creatingParentContainersIfNeeded()
                .withProtection()
                .withMode(CreateMode.EPHEMERAL_SEQUENTIAL)
                .forPath("/recipes/protected/n-");
        check(path.matches("/recipes/protected/_c_[0-9a-f-]{36}-n-[0-9]{10}"), path);
        curator.delete().guaranteed().forPath(path);
        return null;
    }

    private Void acl() throws Exception {
        String digest = DigestAuthenticationProvider.generateDigest("who:secret");
        List<ACL> only = Arrays.asList(new ACL(ZooDefs.Perms.ALL, new Id("digest", digest)));
        try (CuratorFramework own = CuratorFrameworkFactory.builder()
                .connectString(server)
                .retryPolicy(new RetryOneTime(200))
                .authorization("digest", bytes("who:secret"))
                .build()) {
            own.start();
            own.create().creatingParentsIfNeeded().withACL(only).forPath("/recipes/private", bytes("x"));
            check(own.getData().forPath("/recipes/private").length == 1, "its own data");
            try {
                curator.getData().forPath("/recipes/private");
                throw new AssertionError("everybody reads it");
            } catch (KeeperException.NoAuthException error) {
                check(own.getACL().forPath("/recipes/private").equals(only), "another list");
            }
            own.delete().forPath("/recipes/private");
        }
        return null;
    }

    private Void versions() throws Exception {
        Stat made = new Stat();
        curator.create().storingStatIn(made).creatingParentsIfNeeded().forPath("/recipes/versions", bytes("1"));
        Stat set = curator.setData().withVersion(made.getVersion()).forPath("/recipes/versions", bytes("2"));
        check(set.getVersion() == 1 && set.getCzxid() == made.getCzxid(), "stat: " + set);
        try {
            curator.delete().withVersion(0).forPath("/recipes/versions");
            throw new AssertionError("an old version is taken");
        } catch (KeeperException.BadVersionException error) {
            curator.delete().withVersion(1).forPath("/recipes/versions");
        }
        check(curator.sync() != null, "no sync");
        return null;
    }

    private Void deepDelete() throws Exception {
        curator.create().creatingParentsIfNeeded().forPath("/recipes/deep/a/b/c");
        try {
            curator.delete().forPath("/recipes/deep");
            throw new AssertionError("a node with children is deleted");
        } catch (KeeperException.NotEmptyException error) {
            curator.delete().guaranteed().deletingChildrenIfNeeded().forPath("/recipes/deep");
        }
        check(curator.checkExists().forPath("/recipes/deep") == null, "it is there");
        return null;
    }

    /** Ends a session from outside: a second client takes it over and closes it. */
    private void end(CuratorFramework own) throws Exception {
        ZooKeeper theirs = own.getZookeeperClient().getZooKeeper();
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper twin = new ZooKeeper(server, 4000, event -> connected.countDown(), theirs.getSessionId(), theirs.getSessionPasswd());
        check(connected.await(SOON, TimeUnit.SECONDS), "the twin has no connection");
        twin.close();
    }

    private static BlockingQueue<ConnectionState> states(CuratorFramework own) {
        BlockingQueue<ConnectionState> states = new LinkedBlockingQueue<>();
        own.getConnectionStateListenable().addListener((client, state) -> states.add(state));
        return states;
    }

    private static <T> void await(BlockingQueue<T> queue, T wanted) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(2 * SOON);
        while (true) {
            T next = queue.poll(until - System.nanoTime(), TimeUnit.NANOSECONDS);
            check(next != null, "it never came: " + wanted);
            if (next.equals(wanted)) {
                return;
            }
        }
    }

    private interface Question {
        boolean ask() throws Exception;
    }

    private static void eventually(Question question, String what) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(2 * SOON);
        while (!question.ask()) {
            check(System.nanoTime() < until, "not in time: " + what);
            Thread.sleep(20);
        }
    }

    /** In another thread, because locks belong to threads. */
    private boolean otherwise(Callable<Boolean> question) throws Exception {
        return others.submit(question).get(2 * SOON, TimeUnit.SECONDS);
    }

    private static void check(boolean isTrue, String what) {
        if (!isTrue) {
            throw new AssertionError(what);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** A way to the server whose connections can be cut. */
    private static final class Relay implements AutoCloseable {
        final String server;
        private final ServerSocket door = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        private final List<Socket> ends = new ArrayList<>();

        Relay(String server) throws IOException {
            String[] parts = server.split("/", 2);
            // One of several is enough.
            String[] address = parts[0].split(",")[0].split(":");
            this.server = "127.0.0.1:" + door.getLocalPort() + (parts.length > 1 ? "/" + parts[1] : "");
            start(() -> {
                while (true) {
                    Socket client = door.accept();
                    Socket there = new Socket(address[0], Integer.parseInt(address[1]));
                    synchronized (ends) {
                        ends.add(client);
                        ends.add(there);
                    }
                    start(() -> client.getInputStream().transferTo(there.getOutputStream()));
                    start(() -> there.getInputStream().transferTo(client.getOutputStream()));
                }
            });
        }

        void cut() throws IOException {
            synchronized (ends) {
                for (Socket end : ends) {
                    end.close();
                }
                ends.clear();
            }
        }

        @Override
        public void close() throws IOException {
            door.close();
            cut();
        }

        /** In a thread of its own, which ends with the sockets. */
        private static void start(Callable<?> work) {
            Thread thread = new Thread(() -> {
                try {
                    work.call();
                } catch (Exception closed) {
                    // So it is meant.
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
    }

    /** Stands for nothing: only to ask who does. */
    private static final class Nobody extends LeaderSelectorListenerAdapter {
        @Override
        public void takeLeadership(CuratorFramework client) {}
    }
}
