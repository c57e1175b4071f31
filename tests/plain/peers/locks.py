"""Members of a crowd that lock with redis-py's Lock, or with pymemcache's add.

locks.py KIND SERVER NAME TTL_MS count FILE ROUNDS | hold
"""
import sys
import time


def redis_py(server, name, ttl):
    import redis

    host, port = server.rsplit(":", 1)
    lock = redis.Redis(host=host, port=int(port)).lock(name, timeout=ttl, sleep=0.005)
    return lock.acquire, lock.release


def pymemcache(server, name, ttl):
    from pymemcache.client.base import Client

    host, port = server.rsplit(":", 1)
    client = Client((host, int(port)))

    def acquire():
        while not client.add(name, "pymemcache", expire=int(ttl), noreply=False):
            time.sleep(0.005)

    return acquire, lambda: client.delete(name, noreply=False)


def main():
    kind, server, name, ttl, what, *rest = sys.argv[1:]
    acquire, release = {"redis-py": redis_py, "pymemcache": pymemcache}[kind](
        server, name, int(ttl) / 1000
    )
    if what == "hold":
        acquire()
        print("holding", flush=True)
        sys.stdin.read()
        release()
        return
    file, rounds = rest
    for _ in range(int(rounds)):
        acquire()
        with open(file) as counter:
            count = int(counter.read())
        time.sleep(0.001)
        with open(file, "w") as counter:
            counter.write(str(count + 1))
        release()


main()
