"""A member of a crowd, with kazoo's recipes: takes its turn over and over, until its stdin ends.

Arguments: the server with its chroot, the lock's path, the recipe, how many threads, the book, and how many milliseconds a turn takes.
What is done in a turn is what the members in Rust and Java do: see book.rs.
"""

import os
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock


class SharedLock(Lock):
    """kazoo's lock with names that Curator and Lockkeeper see, and that sees theirs."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-"]


def main():
    server, path, recipe, threads, book, work = sys.argv[1:]
    client = KazooClient(hosts=server, timeout=4.0)
    client.start()
    ends = threading.Event()

    def note(line):
        handle = os.open(book, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, (line + "\n").encode())
        finally:
            os.close(handle)

    def turn(who, mode, token):
        with open(book, encoding="utf-8") as lines:
            count = sum(line.startswith("=") for line in lines)
        note(f"+ {who} {mode} {token}")
        time.sleep(int(work) / 1000)
        if mode == "w":
            note(f"= {who} {count + 1}")
        note(f"- {who} {mode}")

    def identity(lock):
        return client.exists(f"{path}/{lock.node}").czxid

    def locked(lock, who, mode):
        with lock:
            # Readers overlap, so their identities are in no order.
            turn(who, mode, identity(lock) if mode == "w" else 0)

    def once(who):
        if recipe == "election":
            election = client.Election(path, who)
            election.run(lambda: turn(who, "w", identity(election.lock)))
            return
        kinds = {
            "mutex": client.Lock,
            "shared": lambda path, who: SharedLock(client, path, who),
            "read": client.ReadLock,
            "write": client.WriteLock,
        }
        locked(kinds[recipe](path, who), who, "r" if recipe == "read" else "w")

    def again_and_again(number):
        who = f"python-{os.getpid()}-{number}"
        while not ends.is_set():
            try:
                once(who)
            except Exception as error:  # a crowd that is being hurt: the next try is a new one
                print(f"{who}: {error!r}", file=sys.stderr)
                time.sleep(0.1)

    workers = [threading.Thread(target=again_and_again, args=(number,), daemon=True) for number in range(int(threads))]
    for worker in workers:
        worker.start()
    sys.stdin.read()
    ends.set()
    for worker in workers:
        worker.join(10)
    client.stop()


main()
