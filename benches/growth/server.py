"""A server of its own for each measurement, and clients of it: blocking ones, since an event loop would be a part of each
latency."""

import json
import re
import resource
import subprocess
import time

import websocket

# Seconds that anything here may take.
TIMEOUT = 60
START = {"cwd": "file:///", "env": {"PATH": "/usr/bin:/bin"}, "tty": False}


class Server:
    """Ends with the `with` block."""

    def __init__(self, program):
        raise_descriptor_limit()
        command = [program, "--listen", "ws://127.0.0.1:0", "--set", "auth.failure_delay_ms=0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def resident_kib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))


class Client:
    """One session. Requests are answered in any order; of events only the ends of processes are kept."""

    def __init__(self, url):
        self.socket = websocket.create_connection(url, timeout=TIMEOUT, suppress_origin=True)
        self.last_id, self.started = 0, 0
        self.call("initialize", {"clientName": "growth"})
        self.socket.send(json.dumps({"method": "initialized", "params": {}}))

    def send(self, method, params):
        self.last_id += 1
        self.socket.send(json.dumps({"id": self.last_id, "method": method, "params": params}))
        return self.last_id

    def receive(self):
        message = json.loads(self.socket.recv())
        if "error" in message:
            raise SystemExit(f"refused: {message['error']}")
        return message

    def call(self, method, params):
        number = self.send(method, params)
        while self.receive().get("id") != number:
            pass

    def start(self, *argv):
        """Sends a start and returns the id of the process."""
        self.started += 1
        name = f"p{self.started}"
        self.send("process/start", {"processId": name, "argv": argv, **START})
        return name

    def run(self, *argv):
        """From the start of a process to its close."""
        name = self.start(*argv)
        while not is_close(message := self.receive()) or message["params"]["processId"] != name:
            pass

    def start_many(self, count, is_done, *argv):
        """Starts processes, a few at a time, and waits for one message that `is_done` of each."""
        sent = done = 0
        while done < count:
            while sent < count and sent - done < 32:
                self.start(*argv)
                sent += 1
            done += is_done(self.receive())


def is_close(message):
    return message.get("method") == "process/closed"


def is_answer(message):
    return "result" in message


def raise_descriptor_limit():
    """For a server with many sessions, and for their clients."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def timed(count, run):
    """Microseconds of each run."""
    spent = []
    for _ in range(count):
        began = time.perf_counter()
        run()
        spent.append((time.perf_counter() - began) * 1e6)
    return sorted(spent)
