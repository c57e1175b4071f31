"""Lets kazoo's own tests run on servers that are there already: a plugin for pytest, in place of those that kazoo would start.

LOCKKEEPER_SERVER is the server. kazoo wants three that it can stop, so here are three doors to it. A door that is stopped lets nobody
in and throws out who is inside, as a server of an ensemble that stops; the sessions go on. LOCKKEEPER_REPORT is the file for what became
of each test: `passed`, `failed` or `skipped`, its name, and why. Before any of them runs, each is `unfinished` there.

A server of ZooKeeper has a large request on its disk before it answers. kazoo's test of a dropped connection needs that time, and the
embedded server takes none: the doors do.
"""

import os
import socket
import sys
import threading
import time
import types

# Only for making certificates, which these servers have no use for.
for name in ("OpenSSL", "jks"):
    sys.modules.setdefault(name, types.ModuleType(name))

from kazoo.testing import harness  # noqa: E402


class Request:
    """What a connection has asked for since its last answer."""

    large = 512 * 1024
    on_disk = 0.2

    def __init__(self):
        self.size = 0

    def asks(self, data):
        self.size += len(data)

    def is_answered(self, _data):
        if self.size > self.large:
            time.sleep(self.on_disk)
        self.size = 0


class Door:
    """One address of the server."""

    host = "127.0.0.1"

    def __init__(self):
        self.running = False
        self.port = 0
        self.listener = None
        self.inside = set()
        self.run()

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def run(self):
        if self.running:
            return
        listener = socket.create_server((self.host, self.port))
        self.listener, self.port, self.running = listener, listener.getsockname()[1], True
        threading.Thread(target=self._let_in, args=(listener,), daemon=True).start()

    def stop(self):
        if not self.running:
            return
        self.running = False
        # Wakes whoever accepts, as closing does not.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for one in list(self.inside):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has gone by itself

    reset = destroy = stop

    def get_logs(self):
        return []

    def _let_in(self, listener):
        server = os.environ["LOCKKEEPER_SERVER"].rsplit(":", 1)
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection((server[0], int(server[1])))
            except OSError:
                client.close()
                continue
            for one in (client, there):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.inside.add(one)
            # It may have been stopped since it let this one in.
            if not self.running:
                client.close()
                there.close()
                continue
            request = Request()
            for way in ((client, there, request.asks), (there, client, request.is_answered)):
                threading.Thread(target=self._carry, args=way, daemon=True).start()

    def _carry(self, source, sink, before):
        try:
            while data := source.recv(65536):
                before(data)
                sink.sendall(data)
        except OSError:
            pass  # the other end has gone, and is told below
        for one in (source, sink):
            self.inside.discard(one)
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has gone by itself


class Cluster(list):
    """Three doors, which stay where they are: kazoo ends its servers after each class, and starts them again."""

    def start(self):
        for door in self:
            door.run()

    def terminate(self):
        for door in self:
            door.stop()

    def get_logs(self):
        return []


CLUSTER = Cluster(Door() for _ in range(3))
harness.get_global_cluster = lambda: CLUSTER


# By id, which has the file's name or not, as the test was asked for.
NAMES = {}


def report_line(outcome, test, why=""):
    with open(os.environ["LOCKKEEPER_REPORT"], "a", encoding="utf-8") as file:
        file.write(f"{outcome} {NAMES[test]} {why}\n")


def pytest_collection_finish(session):
    for test in session.items:
        NAMES[test.nodeid] = f"{test.path.name}::{test.nodeid.split('::', 1)[1]}"
        report_line("unfinished", test.nodeid)


def pytest_runtest_logreport(report):
    # What fails before or after the test itself counts, and what passes there does not.
    if report.when != "call" and report.passed:
        return
    why = ""
    if report.skipped and isinstance(report.longrepr, tuple):
        why = report.longrepr[2]
    elif report.failed:
        why = str(report.longrepr).strip().splitlines()[-1]
    report_line(report.outcome, report.nodeid, why)
