"""The measurements, each at growing sizes and each size on a fresh server."""

import contextlib
import multiprocessing
import selectors
import sys
import time

from server import Client, Server, is_answer, is_close, timed

CALLS = 1000
STARTS = 200
SIZES = [1, 10, 100, 1000]
FLOODS = [0, 1, 2, 4, 8]


def all_rows(program, largest):
    cases = [
        ("sessions", sessions, SIZES),
        ("live processes", live_processes, SIZES),
        ("finished processes", finished_processes, [*SIZES, 10_000]),
        ("floods", floods, FLOODS),
    ]
    rows = []
    for kind, fill, sizes in cases:
        for size in filter(lambda size: size <= largest, sizes):
            print(f"{kind}: {size}", file=sys.stderr)
            with Server(program) as server:
                rows.append({"of": kind, "size": size} | row(server, fill, size))
    return rows


def row(server, fill, size):
    """The latencies of a session beside what `fill` adds, which yields what else is to be known of it."""
    client = Client(server.url)
    # So that nothing which is done once is counted.
    latencies(client)
    with fill(server, size) as others:
        return latencies(client) | others()


def latencies(client):
    calls = timed(CALLS, lambda: client.call("environment/status", {}))
    starts = timed(STARTS, lambda: client.run("/bin/true"))
    figures = {}
    for name, spent in [("call", calls), ("start", starts)]:
        for percent in (50, 99):
            figures[f"{name}P{percent}Us"] = round(spent[len(spent) * percent // 100], 1)
    return figures


@contextlib.contextmanager
def sessions(server, size):
    """Idle ones, each with its connection."""
    before = server.resident_kib()
    clients = [Client(server.url) for _ in range(size)]
    yield memory(server, size, before)
    for client in clients:
        client.socket.close()


@contextlib.contextmanager
def live_processes(server, size):
    """They sleep."""
    client, before = Client(server.url), server.resident_kib()
    client.start_many(size, is_answer, "/bin/sleep", "1000")
    yield memory(server, size, before)
    client.socket.close()


@contextlib.contextmanager
def finished_processes(server, size):
    """They have closed; their records are kept for a while."""
    client, before = Client(server.url), server.resident_kib()
    client.start_many(size, is_close, "/bin/true")
    yield memory(server, size, before)
    client.socket.close()


def memory(server, size, before):
    """What is resident now, which is before anything else is measured."""
    resident = server.resident_kib()
    figures = {"residentKib": resident, "kibEach": round((resident - before) / size, 2)}
    return lambda: figures


@contextlib.contextmanager
def floods(server, size):
    """Sessions with a process that writes without a pause, and clients that read without one."""
    ready, read = multiprocessing.Event(), multiprocessing.Value("Q", 0)
    reader = multiprocessing.Process(target=read_floods, args=(server.url, size, ready, read), daemon=True)
    reader.start()
    ready.wait()
    began, before = time.monotonic(), read.value
    yield lambda: {"floodMibPerS": round((read.value - before) / (1 << 20) / (time.monotonic() - began), 1)}
    reader.kill()
    reader.join()


def read_floods(url, size, ready, read):
    """In a process of its own, so that reading holds up nothing that is measured. Counts bytes on the wire."""
    selector = selectors.DefaultSelector()
    for _ in range(size):
        client = Client(url)
        client.start("/usr/bin/yes")
        selector.register(client.socket.sock, selectors.EVENT_READ)
        client.socket.sock.setblocking(False)
    ready.set()
    room = bytearray(1 << 20)
    while True:
        for key, _ in selector.select():
            read.value += key.fileobj.recv_into(room)
