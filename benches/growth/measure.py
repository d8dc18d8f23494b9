"""The measurements, each at growing sizes and each size on a fresh server."""

import contextlib
import multiprocessing
import selectors
import sys

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
    return [
        row(program, kind, fill, size)
        for kind, fill, sizes in cases
        for size in sizes
        if size <= largest
    ]


def row(program, kind, fill, size):
    print(f"{kind}: {size}", file=sys.stderr)
    with Server(program) as server:
        client = Client(server.url)
        # So that nothing which is done once is counted.
        latencies(client)
        before = server.resident_kib()
        with fill(server, size):
            beside = {"of": kind, "size": size, "residentKib": server.resident_kib()}
            if kind != "floods":
                beside["kibEach"] = round((beside["residentKib"] - before) / size, 2)
            return beside | latencies(client)


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
    clients = [Client(server.url) for _ in range(size)]
    yield
    for client in clients:
        client.socket.close()


@contextlib.contextmanager
def live_processes(server, size):
    """They sleep."""
    client = Client(server.url)
    client.start_many(size, is_answer, "/bin/sleep", "1000")
    yield
    client.socket.close()


@contextlib.contextmanager
def finished_processes(server, size):
    """They have closed; their records are kept for a while."""
    client = Client(server.url)
    client.start_many(size, is_close, "/bin/true")
    yield
    client.socket.close()


@contextlib.contextmanager
def floods(server, size):
    """Sessions with a process that writes without a pause, and clients that read without one."""
    ready, reader = multiprocessing.Event(), None
    if size:
        reader = multiprocessing.Process(target=read_floods, args=(server.url, size, ready), daemon=True)
        reader.start()
        ready.wait()
    yield
    if reader:
        reader.kill()
        reader.join()


def read_floods(url, size, ready):
    """In a process of its own, so that reading holds up nothing that is measured."""
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
            key.fileobj.recv_into(room)
