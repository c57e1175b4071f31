"""What the drivers in Python share: one order in JSON on each line of stdin, one answer on each line of stdout.

One client, and one lock and one thread for each waiter. The definitions are those of src/drivers/contender.rs: the clock of a
hand-over starts when all waiters are known to wait.
"""

import json
import math
import platform
import sys
import threading
import time
import uuid

STACK_BYTES = 256 * 1024


class Driver:
    """`lock` and `all_wait` are each driver's own."""

    def __init__(self):
        self.run = "/bench-" + uuid.uuid4().hex[:8]

    def lock(self, name):
        """A lock with `acquire` and `release`, for one thread."""
        raise NotImplementedError

    def all_wait(self, name, waiters):
        """Whether so many wait for the lock of this name."""
        raise NotImplementedError

    def prepare(self, name):
        """Makes what a lock of this name needs."""

    def obey(self, order):
        what = order.pop("do")
        return {"uncontended": self.uncontended, "hand_over": self.hand_over, "independent": self.independent}[what](**order)

    def uncontended(self, rounds):
        lock = self.lock(self.run + "-alone")
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
        name, grants, failed_before = self.run + "-queue", [], len(failures)
        holder = self.lock(name)
        holder.acquire()

        def wait():
            try:
                lock = self.lock(name)
                lock.acquire()
                grants.append(time.perf_counter_ns())
                lock.release()
            except Exception as error:  # whatever it is, this waiter failed
                failures.append(repr(error))

        before, began = resident_bytes(), time.perf_counter_ns()
        crowd = [threading.Thread(target=wait) for _ in range(waiters)]
        for thread in crowd:
            thread.start()
        while not self.all_wait(name, waiters - (len(failures) - failed_before)):
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
        names = [f"{self.run}-own-{number}" for number in range(locks)]
        for name in names:
            self.prepare(name)
        own = [self.lock(name) for name in names]
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


def address(server):
    host, port = server.rsplit(":", 1)
    return host, int(port)


def say(line):
    print(json.dumps(line), flush=True)


def serve(driver, version):
    """Obeys until the runner closes the pipe."""
    threading.stack_size(STACK_BYTES)
    say({"version": f"{version}, Python {platform.python_version()}"})
    for line in sys.stdin:
        try:
            answer = driver.obey(json.loads(line))
        except Exception as error:  # the runner is told, and goes on
            answer = {"error": repr(error)}
        say(answer)
