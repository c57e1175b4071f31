"""One who stands in a queue of kazoo's, or looks at it.

`SERVER stand PATH ID` stands there, says `in` once it has the lock, and leaves when its stdin ends. `SERVER list PATH` prints the identifiers
of those who stand there, one in each line.
"""

import sys

from kazoo.client import KazooClient

server, what, path, *identifier = sys.argv[1:]
client = KazooClient(hosts=server, timeout=4.0)
client.start()
lock = client.Lock(path, *identifier)
if what == "stand":
    with lock:
        print("in", flush=True)
        sys.stdin.read()
else:
    for contender in lock.contenders():
        print(contender)
client.stop()
