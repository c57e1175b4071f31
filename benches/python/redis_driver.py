"""Drives a lock on Redis for the runner, through one client with a pool of connections.

redis-py's own Lock asks again after a pause. That of python-redis-lock waits in a BLPOP.
"""

import sys
import threading
from importlib.metadata import version

import redis
import redis_lock
from driver import Driver, address, serve
from redis.lock import Lock

TTL = 600
# A waiter has one while it asks.
CONNECTIONS = 20_000


class Polling(Driver):
    """redis-py, which asks again after `pause` seconds."""

    def __init__(self, server, aside, pause):
        super().__init__()
        host, port = address(server)
        self.client = redis.Redis(host=host, port=port, max_connections=CONNECTIONS)
        self.pause = pause
        self.refused, self.counting = set(), threading.Lock()

    def lock(self, name):
        driver = self

        class Counted(Lock):
            """It tells who has been refused and not been granted yet."""

            def do_acquire(self, token):
                granted = True  # who fails asks no more
                try:
                    granted = super().do_acquire(token)
                finally:
                    with driver.counting:
                        (driver.refused.discard if granted else driver.refused.add)(id(self))
                return granted

        return self.client.lock(name, timeout=TTL, sleep=self.pause, lock_class=Counted)

    def all_wait(self, name, waiters):
        return len(self.refused) >= waiters


class Blocking(Driver):
    """python-redis-lock."""

    def __init__(self, server, aside, pause):
        super().__init__()
        host, port = address(server)
        self.client = redis.Redis(host=host, port=port, max_connections=CONNECTIONS)
        host, port = address(aside)
        self.aside = redis.Redis(host=host, port=port)

    def lock(self, name):
        return redis_lock.Lock(self.client, name, expire=TTL)

    def all_wait(self, name, waiters):
        return self.aside.info("clients")["blocked_clients"] >= waiters


server, aside, package, pause_ms = sys.argv[1:]
driver = {"redis-py": Polling, "python-redis-lock": Blocking}[package](server, aside, int(pause_ms) / 1000)
distribution = {"redis-py": "redis"}.get(package, package)
serve(driver, f"{package} {version(distribution)}")
