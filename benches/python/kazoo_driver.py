"""Drives kazoo's Lock for the runner: one order in JSON on each line of stdin, one answer on each line of stdout.

One KazooClient, so one session; one Lock and one thread for each waiter. The definitions are those of
src/drivers/contender.rs: the clock of a hand-over starts when all waiters have their watch at the server.
"""

import json
import math
import platform
import re
import socket
import sys
import threading
import time
import uuid

import kazoo
from kazoo.client import KazooClient

SESSION_TIMEOUT = 30.0
STACK_BYTES = 256 * 1024
TOTAL = re.compile(r"Total watches:(\d+)")


class Driver:
    def __init__(self, server, aside):
        host, port = aside.rsplit(":", 1)
        self.aside = (host, int(port))
        self.client = KazooClient(hosts=server, timeout=SESSION_TIMEOUT)
        self.client.start()
        self.run = "/bench-" + uuid.uuid4().hex[:8]

    def obey(self, order):
        what = order.pop("do")
        return {"uncontended": self.uncontended, "hand_over": self.hand_over, "independent": self.independent}[what](**order)

    def uncontended(self, rounds):
        lock = self.client.Lock(self.run + "-alone", "bench")
        times = []
        for _ in range(rounds):
            began = time.perf_counter_ns()
            lock.acquire()
            lock.release()
            times.append(time.perf_counter_ns() - began)
        return figures(times)

    def hand_over(self, waiters, repeats):
        gaps, failures, enqueue, grown = [], [], 0.0, 0.0
        for _ in range(repeats):
            grown = max(grown, self.drain(waiters, gaps, failures))
            enqueue += self.enqueue_ms
        answer = figures(gaps)
        answer.update(enqueue_ms=enqueue / repeats, bytes_per_waiter=grown, failed=len(failures))
        if failures:
            answer["error"] = failures[0]
        return answer

    def drain(self, waiters, gaps, failures):
        path, grants, failed_before = self.run + "-queue", [], len(failures)
        holder = self.client.Lock(path, "holder")
        holder.acquire()

        def wait():
            try:
                lock = self.client.Lock(path, "waiter")
                lock.acquire()
                grants.append(time.perf_counter_ns())
                lock.release()
            except Exception as error:  # whatever it is, this waiter failed
                failures.append(repr(error))

        before, began = resident_bytes(), time.perf_counter_ns()
        crowd = [threading.Thread(target=wait) for _ in range(waiters)]
        for thread in crowd:
            thread.start()
        while self.watches() < waiters - (len(failures) - failed_before):
            time.sleep(0.002)
        self.enqueue_ms = (time.perf_counter_ns() - began) / 1e6
        grown = max(0, resident_bytes() - before) / waiters

        last = time.perf_counter_ns()
        holder.release()
        for thread in crowd:
            thread.join()
        for grant in sorted(grants):
            gaps.append(grant - last)
            last = grant
        return grown

    def independent(self, locks, milliseconds):
        own = [self.client.Lock(f"{self.run}-own-{number}", "bench") for number in range(locks)]
        for lock in own:
            self.client.ensure_path(lock.path)
        taken, failures = [0] * locks, []
        began = time.perf_counter_ns()
        end = began + milliseconds * 1_000_000

        def work(number):
            try:
                while time.perf_counter_ns() < end:
                    own[number].acquire()
                    own[number].release()
                    taken[number] += 1
            except Exception as error:  # one failure spoils the figure
                failures.append(repr(error))

        crowd = [threading.Thread(target=work, args=(number,)) for number in range(locks)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()
        if failures:
            raise RuntimeError(failures[0])
        return {"locks_per_s": sum(taken) * 1e9 / (time.perf_counter_ns() - began)}

    def watches(self):
        """How many watches the server holds, asked beside the session."""
        with socket.create_connection(self.aside, timeout=10) as stream:
            stream.sendall(b"wchs")
            answer = b"".join(iter(lambda: stream.recv(4096), b"")).decode()
        return int(TOTAL.search(answer).group(1))


def figures(nanos):
    nanos.sort()
    count = len(nanos)
    mean = sum(nanos) / count / 1e3 if count else 0.0
    return {"mean_us": mean, "p50_us": percentile(nanos, 0.50), "p99_us": percentile(nanos, 0.99)}


def percentile(ordered, part):
    return ordered[max(math.ceil(part * len(ordered)), 1) - 1] / 1e3 if ordered else 0.0


def resident_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def say(line):
    print(json.dumps(line), flush=True)


def main():
    threading.stack_size(STACK_BYTES)
    driver = Driver(sys.argv[1], sys.argv[2])
    say({"version": f"kazoo {kazoo.__version__}, Python {platform.python_version()}"})
    for line in sys.stdin:
        try:
            answer = driver.obey(json.loads(line))
        except Exception as error:  # the runner is told, and goes on
            answer = {"error": repr(error)}
        say(answer)


main()
