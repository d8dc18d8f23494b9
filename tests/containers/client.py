"""A client for the cases here, without anything of the server's own: over a WebSocket or over a command's pipes."""

import base64
import json
import select
import subprocess
import time

# Seconds that anything may take on a machine that is busy with other things.
TIMEOUT = 60


class Client:
    """Requests one after the other; notifications are kept in the order in which they came."""

    def __init__(self, send, receive):
        self.send, self.receive = send, receive
        self.notes, self.last_id = [], 0
        self.hello = self.ok("initialize", {"clientName": "containers"})
        self.send(json.dumps({"method": "initialized", "params": {}}))

    @classmethod
    def websocket(cls, url, token=None):
        """Connects to `ws://` or `unix:`, with the token that the server asks for."""
        from websockets.sync.client import connect, unix_connect

        headers = {"Authorization": f"Bearer {token}"} if token else {}
        options = {"additional_headers": headers, "max_size": None, "compression": None}
        if url.startswith("unix:"):
            socket = unix_connect(url.removeprefix("unix:"), **options).__enter__()
        else:
            socket = connect(url, **options).__enter__()
        client = cls(socket.send, socket.recv)
        client.socket = socket
        return client

    @classmethod
    def stdio(cls, command):
        """Starts the command, which serves its standard input and output. It ends with `close`."""
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        buffered = b""

        def receive(timeout):
            nonlocal buffered
            while b"\n" not in buffered:
                assert select.select([child.stdout], [], [], timeout)[0], "no answer"
                piece = child.stdout.read(1 << 16)
                assert piece, "the server ended"
                buffered += piece
            line, buffered = buffered.split(b"\n", 1)
            return line

        client = cls(lambda text: child.stdin.write(text.encode() + b"\n"), receive)
        client.child = child
        return client

    def close(self):
        """Ends a command that was started, and returns its exit code."""
        self.child.stdin.close()
        return self.child.wait(timeout=TIMEOUT)

    def call(self, method, params, timeout=TIMEOUT):
        """The whole response, with its `result` or `error`."""
        self.last_id += 1
        self.send(json.dumps({"id": self.last_id, "method": method, "params": params}))
        while True:
            message = self.next(timeout)
            if message.get("id") == self.last_id:
                return message
            self.notes.append(message)

    def ok(self, method, params, timeout=TIMEOUT):
        response = self.call(method, params, timeout)
        assert "result" in response, f"{method}: {response}"
        return response["result"]

    def next(self, timeout=TIMEOUT):
        return json.loads(self.receive(timeout))

    def wait(self, predicate, timeout=TIMEOUT):
        """Takes messages until the predicate holds for one; what was kept before counts as well."""
        deadline = time.monotonic() + timeout
        for message in self.notes:
            if predicate(message):
                return message
        while True:
            message = self.next(max(0.1, deadline - time.monotonic()))
            self.notes.append(message)
            if predicate(message):
                return message

    def start(self, name, argv, **params):
        return self.ok("process/start", start(name, argv, **params))

    def output(self, name):
        """What a process has written to its standard output so far."""
        chunks = [
            base64.b64decode(note["params"]["chunk"])
            for note in self.notes
            if is_event(note, "process/output", name) and note["params"]["stream"] == "stdout"
        ]
        return b"".join(chunks).decode()

    def wait_output(self, name, text, timeout=TIMEOUT):
        def has_come(_):
            return text in self.output(name)

        if not has_come(None):
            self.wait(has_come, timeout)

    def end(self, name, timeout=TIMEOUT):
        """Waits for the end of a process: its exit code and its output."""
        ended = self.wait(lambda note: is_event(note, "process/exited", name), timeout)
        self.wait(lambda note: is_event(note, "process/closed", name), timeout)
        return ended["params"]["exitCode"], self.output(name)

    def run(self, name, argv, **params):
        """Starts a process and waits for its end."""
        self.start(name, argv, **params)
        return self.end(name)


def is_event(note, method, name):
    return note.get("method") == method and note["params"]["processId"] == name


def start(name, argv, cwd="/tmp", sandbox=None, env=None):
    """The params of `process/start`. A text as `argv` is for `/bin/sh`."""
    params = {
        "processId": name,
        "argv": ["/bin/sh", "-c", argv] if isinstance(argv, str) else argv,
        "cwd": f"file://{cwd}",
        "env": env or {"PATH": "/usr/bin:/bin"},
        "tty": False,
    }
    if sandbox is not None:
        params["sandbox"] = sandbox
    return params


def policy(cwd, writable):
    """A sandbox that reads everything, has no network, and writes in its directory or nowhere."""
    entries = [{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}]
    if writable:
        entries.append({"path": {"type": "special", "value": {"kind": "project_roots"}}, "access": "write"})
    files = {"type": "restricted", "entries": entries}
    return {
        "permissions": {"type": "managed", "file_system": files, "network": "restricted"},
        "cwd": f"file://{cwd}",
        "workspaceRoots": [f"file://{cwd}"],
        "windowsSandboxLevel": "disabled",
    }


def wait_until(holds, what, timeout=TIMEOUT):
    """Waits for something that no message tells."""
    deadline = time.monotonic() + timeout
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.05)
    return found
