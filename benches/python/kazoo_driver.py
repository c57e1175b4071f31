"""Drives kazoo's Lock for the runner, through one KazooClient and so one session."""

import re
import socket
import sys

import kazoo
from driver import Driver, address, serve
from kazoo.client import KazooClient

SESSION_TIMEOUT = 30.0
TOTAL = re.compile(r"Total watches:(\d+)")


class Kazoo(Driver):
    def __init__(self, server, aside):
        super().__init__()
        self.aside = address(aside)
        self.client = KazooClient(hosts=server, timeout=SESSION_TIMEOUT)
        self.client.start()

    def prepare(self, name):
        self.client.ensure_path(name)

    def lock(self, name):
        return self.client.Lock(name, "bench")

    def all_wait(self, name, waiters):
        """Asks the server for its watches, beside the session."""
        with socket.create_connection(self.aside, timeout=10) as stream:
            stream.sendall(b"wchs")
            answer = b"".join(iter(lambda: stream.recv(4096), b"")).decode()
        return int(TOTAL.search(answer).group(1)) >= waiters


serve(Kazoo(sys.argv[1], sys.argv[2]), f"kazoo {kazoo.__version__}")
