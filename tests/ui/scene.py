"""Puts nodes below the root as other clients do, by orders on stdin: one line of JSON each.

["tickets", [[lock, data], ..]]  a ticket for each, and its name in the answer
["page", lock, text]             a lock's page of the journal
["end", [path, ..]]              removes tickets
"""

import json
import sys

from kazoo.client import KazooClient


def tickets(client, wanted):
    for lock in {lock for lock, _ in wanted}:
        client.ensure_path(f"/locks/{lock}")
    making = [
        client.create_async(f"/locks/{lock}/lock-", json.dumps(data).encode(), ephemeral=True, sequence=True)
        for lock, data in wanted
    ]
    return [made.get() for made in making]


def page(client, lock, text):
    path = f"/locks-journal/{lock}"
    client.ensure_path(path)
    client.set(path, text.encode())


def end(client, paths):
    for path in paths:
        client.delete(path)


def main():
    client = KazooClient(sys.argv[1])
    client.start()
    for line in sys.stdin:
        order, *arguments = json.loads(line)
        print(json.dumps(globals()[order](client, *arguments)), flush=True)
    client.stop()


main()
