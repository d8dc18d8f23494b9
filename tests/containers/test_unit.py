"""The packaged unit under a real systemd. Run by `tests/containers/systemd`, as root inside a machine that has booted."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import urllib.request

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from client import Client, policy, wait_until

UNIT = "exec-server.service"
URL = "ws://127.0.0.1:8765"
WORK = pathlib.Path("/var/lib/exec-server/work")
DROP_IN = pathlib.Path(f"/run/systemd/system/{UNIT}.d/test.conf")


def systemctl(*arguments, check=True):
    return subprocess.run(["systemctl", *arguments], check=check, capture_output=True, text=True, timeout=60).stdout.strip()


def show(name, unit=UNIT):
    return systemctl("show", "--property", name, "--value", unit)


def journal(since):
    return subprocess.run(
        ["journalctl", "--unit", UNIT, "--after-cursor", since, "--output=cat"], capture_output=True, text=True
    ).stdout


def cursor():
    shown = subprocess.run(["journalctl", "--lines=0", "--show-cursor"], capture_output=True, text=True).stdout
    return re.search("-- cursor: (.*)", shown).group(1)


def token():
    return pathlib.Path("/etc/exec-server/token").read_text().strip()


def connect(**options):
    return Client.websocket(URL, token(), **options)


def alive(marker):
    """How many processes have the marker in their command line."""
    found = subprocess.run(["pgrep", "--count", "--full", f"^sleep {marker}$"], capture_output=True, text=True)
    return int(found.stdout)


@pytest.fixture(autouse=True)
def unit():
    """The unit as packaged, just started."""
    DROP_IN.unlink(missing_ok=True)
    systemctl("daemon-reload")
    systemctl("stop", "exec-server.socket", UNIT)
    systemctl("reset-failed", UNIT, check=False)
    systemctl("start", UNIT)
    yield
    DROP_IN.unlink(missing_ok=True)


@pytest.fixture
def workspace():
    """A directory that the service's user owns."""
    path = WORK / "case"
    path.mkdir()
    shutil.chown(path, "exec-server", "exec-server")
    yield str(path)
    shutil.rmtree(path)


def drop_in(text):
    DROP_IN.parent.mkdir(parents=True, exist_ok=True)
    DROP_IN.write_text(text)
    systemctl("daemon-reload")
    systemctl("restart", UNIT)


def test_start_means_that_it_answers():
    assert show("ActiveState") == "active" and show("Type") == "notify"
    assert urllib.request.urlopen("http://127.0.0.1:8765/readyz", timeout=5).status == 200
    assert URL in show("StatusText"), "the status says where it listens"
    assert connect().run("id", "id -un; pwd", cwd=str(WORK)) == (0, f"exec-server\n{WORK}\n")


def test_it_asks_for_the_token():
    for wrong in (None, "x" * 40):
        with pytest.raises(InvalidStatus) as refused:
            Client.websocket(URL, wrong)
        assert refused.value.response.status_code == 401


def test_programs_do_not_get_what_belongs_to_the_service():
    _, output = connect().run("env", ["/usr/bin/env"])
    assert "NOTIFY_SOCKET" not in output and "WATCHDOG" not in output and "LISTEN_" not in output
    _, status = connect().run("status", "grep -E 'CapBnd|CapEff|NoNewPrivs' /proc/self/status")
    assert status.split() == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]


def test_programs_write_at_home_and_not_in_the_system(workspace):
    client = connect()
    assert client.run("home", "echo x > f && cat f", cwd=workspace) == (0, "x\n")
    code, _ = client.run("system", "echo x > /etc/f || echo x > /usr/f || echo x > /home/f")
    assert code != 0


@pytest.mark.parametrize("writable", [False, True], ids=["read-only", "workspace"])
def test_a_sandbox_with_namespaces_works(workspace, writable):
    client = connect()
    report = client.hello["environmentInfo"]["sandbox"]
    assert report["default"] == "namespaces", report
    script = "echo x > ok; ls; echo y > /var/lib/exec-server/work/out || echo denied"
    _, output = client.run("sandboxed", script, cwd=workspace, sandbox=policy(workspace, writable))
    assert ("ok\n" in output) == writable and "denied" in output, output
    # Neither what the server keeps nor what it was given is shown, to programs and to file calls.
    credential = f"/run/credentials/{UNIT}/token"
    script = f"ls /var/lib/exec-server/state || echo no state; cat {credential} || echo no token"
    _, output = client.run("looks", script, cwd=workspace, sandbox=policy(workspace, writable))
    assert output == "no state\nno token\n"
    read = client.call("fs/readFile", {"path": f"file://{credential}", "sandbox": policy(workspace, writable)})
    assert "error" in read


def test_a_sandbox_without_namespaces_works_under_the_landlock_drop_in(workspace):
    DROP_IN.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy("/usr/share/doc/exec-server/examples/landlock-only.conf", DROP_IN.parent / "landlock-only.conf")
    try:
        drop_in("")
        client = connect()
        assert client.hello["environmentInfo"]["sandbox"]["default"] == "landlock"
        script = "echo x > ok; ls; echo y > /var/lib/exec-server/work/out || echo denied"
        code, output = client.run("sandboxed", script, cwd=workspace, sandbox=policy(workspace, True))
        assert code == 0 and "ok\n" in output and "denied" in output, output
    finally:
        (DROP_IN.parent / "landlock-only.conf").unlink()


def test_a_reload_disturbs_nobody():
    client = connect()
    client.start("p", "while read -r line; do echo \"got $line\"; done")
    client.start("ticks", "for i in 1 2 3 4 5 6; do echo tick$i; sleep 0.3; done")
    client.wait_output("ticks", "tick1\n")
    before, since = show("MainPID"), cursor()
    systemctl("reload", UNIT)
    assert (show("ActiveState"), show("MainPID")) == ("active", before)
    wait_until(lambda: "reload" in journal(since).lower() or "re-read" in journal(since).lower(), "the log tells of it")
    assert client.end("ticks")[1] == "".join(f"tick{i}\n" for i in range(1, 7))


def test_a_stop_drains():
    client = connect()
    client.start("clean", ["/bin/bash", "-c", "trap 'echo cleaned > ~/cleaned; exit 7' TERM; echo up; while :; do sleep 0.1; done"], env={"HOME": str(WORK), "PATH": "/usr/bin:/bin"})
    client.start("left", "setsid sleep 4711 & echo up; wait")
    for name in ("clean", "left"):
        client.wait_output(name, "up\n")
    systemctl("stop", UNIT)
    assert (show("ActiveState"), show("Result"), show("ExecMainStatus")) == ("inactive", "success", "0")
    assert (WORK / "cleaned").read_text() == "cleaned\n" and alive(4711) == 0
    (WORK / "cleaned").unlink()
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            client.next()
    assert closed.value.rcvd.code == 1001


def test_a_killed_server_comes_back_and_leaves_nothing():
    client = connect()
    client.start("left", "setsid sleep 4712 & echo up; wait")
    client.wait_output("left", "up\n")
    before = show("MainPID")
    systemctl("kill", "--kill-whom=main", "--signal=KILL", UNIT)
    wait_until(lambda: show("ActiveState") == "active" and show("MainPID") not in ("0", before), "started again")
    assert show("NRestarts") == "1"
    wait_until(lambda: alive(4712) == 0, "the programs of the killed server have ended")
    assert connect().run("p", "echo hi") == (0, "hi\n")


def test_the_watchdog_ends_a_server_that_does_nothing():
    drop_in("[Service]\nWatchdogSec=3\n")
    before, since = int(show("MainPID")), cursor()
    os.kill(before, signal.SIGSTOP)
    wait_until(lambda: show("ActiveState") == "active" and show("MainPID") not in ("0", str(before)), "started again", 60)
    assert "watchdog" in journal(since).lower()
    assert connect().run("p", "echo hi") == (0, "hi\n")


def test_a_server_that_works_keeps_its_watchdog():
    drop_in("[Service]\nWatchdogSec=2\n")
    before = show("MainPID")
    client = connect()
    assert client.run("busy", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 5; echo done")[1] == "done\n"
    assert (show("MainPID"), show("NRestarts")) == (before, "0")


def test_the_socket_starts_the_server_and_keeps_its_address():
    systemctl("stop", UNIT)
    systemctl("start", "exec-server.socket")
    assert show("ActiveState") == "inactive"
    assert connect().run("p", "echo first") == (0, "first\n")
    assert show("ActiveState") == "active"
    # While the server is started anew a connection waits, or was taken by the server that ends, and is closed by it; it
    # is never refused for want of anybody who listens.
    restart = subprocess.Popen(["systemctl", "restart", UNIT])
    while restart.poll() is None:
        with contextlib.suppress(InvalidHandshake, ConnectionClosed, EOFError, ConnectionResetError):
            connect()
    assert connect().run("p", "echo hi") == (0, "hi\n")


def test_a_configuration_that_is_wrong_is_said():
    drop_in_text = "[Service]\nEnvironment=EXEC_SERVER_SESSION_DETACHED_MS=soon\nRestart=no\n"
    since = cursor()
    with pytest.raises(subprocess.CalledProcessError):
        drop_in(drop_in_text)
    assert "session.detached_ms" in journal(since) or "EXEC_SERVER_SESSION_DETACHED_MS" in journal(since)
