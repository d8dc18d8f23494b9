"""A server and a client of it, for the measurements here. Needs the package `websockets`."""

import asyncio
import contextlib
import json
import re
import subprocess

from websockets.asyncio.client import connect


@contextlib.contextmanager
def server(command):
    """Runs a server without its `--listen`; its process and its address."""
    process = subprocess.Popen(
        [*command, "--listen", "ws://127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process, re.search(r"ws://\S+", process.stdout.readline()).group(0)
    finally:
        process.terminate()
        process.wait()


class Client:
    """Any number of calls at a time; the events of each process wait in the order in which they came."""

    def __init__(self, socket):
        self.socket, self.answers, self.events, self.last_id = socket, {}, {}, 0
        self.reader = asyncio.create_task(self.read())

    @classmethod
    async def open(cls, url, name):
        client = cls(await connect(url, max_size=None))
        await client.call("initialize", {"clientName": name})
        await client.socket.send(json.dumps({"method": "initialized", "params": {}}))
        return client

    async def read(self):
        async for text in self.socket:
            message = json.loads(text)
            if "id" in message:
                self.answers.pop(message["id"]).set_result(message)
            else:
                params = message["params"]
                self.events.setdefault(params["processId"], asyncio.Queue()).put_nowait((message["method"], params))

    async def call(self, method, params):
        """The whole answer: `result` or `error`."""
        self.last_id += 1
        answer = self.answers[self.last_id] = asyncio.get_running_loop().create_future()
        await self.socket.send(json.dumps({"id": self.last_id, "method": method, "params": params}))
        return await answer

    async def start(self, name, argv, **more):
        self.events[name] = asyncio.Queue()
        params = {"processId": name, "argv": argv, "cwd": "file:///tmp", "env": {"PATH": "/usr/bin:/bin"}, "tty": False}
        return await self.call("process/start", params | more)

    async def event(self, name, method):
        """The params of the next event of this kind."""
        while (event := await self.events[name].get())[0] != method:
            pass
        return event[1]
