"""The images of the Dockerfile in what clusters and careful people put around them. Run by `tests/containers/image`."""

import json
import os
import subprocess
import time

import pytest

from client import Client, policy, start, wait_until

PODMAN = os.environ["PODMAN"].split()
HERE = os.path.dirname(os.path.abspath(__file__))
NO_NAMESPACES = f"--security-opt=seccomp={HERE}/no-namespaces.json"
# No more than what any machine lets a container have.
LIMITS = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
LOCKED = ["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", NO_NAMESPACES]

# Where a server has to work, by what is taken away from it.
PLACES = {
    "as the image says": [],
    "root": ["--user=0:0"],
    "a user that nobody knows": ["--user=54321:0"],
    "a user and a group that nobody knows": ["--user=54321:54321"],
    "a read-only root": ["--read-only"],
    "no capabilities": ["--cap-drop=all", "--user=0:0"],
    "no namespaces": [NO_NAMESPACES],
    "no HOME": ["--unsetenv=HOME", "--env=HOME="],
    "all of it": [*LOCKED, "--user=54321:54321"],
}
WORKSPACE, OUTSIDE = "--tmpfs=/ws:mode=1777", "--tmpfs=/out:mode=1777"
WRITES = "echo x > ok && cat ok; echo y > /out/z || echo denied"
# The image with BusyBox, the program in an empty image with nothing but a shell, and in a Debian.
IMAGES = ["daemon", "bare", "cases"]


def run(image, options=(), command=()):
    """The command that runs a container, with the server as its first process."""
    return [*PODMAN, "run", "--rm", "--interactive", "--network=none", *LIMITS, *options, f"localhost/{image}", *command]


def podman(*arguments):
    done = subprocess.run([*PODMAN, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def serve():
    """Starts a container that serves its standard input: `serve(image, options)`."""
    clients = []

    def make(image, options=()):
        clients.append(Client.stdio(run(image, options, ["--listen", "stdio"])))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def daemon():
    """Starts a container that listens: `daemon(options)` returns its name."""
    names = []

    def make(*options):
        name = f"exec-server-{os.getpid()}-{len(names)}"
        names.append(name)
        podman("run", "--detach", "--network=none", f"--name={name}", *LIMITS, *options, "localhost/daemon")
        wait_until(lambda: healthy(name), "healthy")
        return name

    yield make
    for name in names:
        subprocess.run([*PODMAN, "rm", "--force", "--time=0", name], capture_output=True)


def healthy(name):
    return subprocess.run([*PODMAN, "exec", name, "exec-server", "health"], capture_output=True).returncode == 0


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("options", PLACES.values(), ids=PLACES)
def test_it_works_in_each_image_whatever_is_taken_away(serve, image, options):
    client = serve(image, [*options, WORKSPACE, OUTSIDE])
    programs_and_files(client)
    orphans_are_reaped(client)
    a_sandbox_that_reads_everything(client)
    a_writable_workspace(client)


def programs_and_files(client):
    shell = client.hello["environmentInfo"]["shell"]
    assert shell["path"] in ("/bin/sh", "/bin/bash"), "the shell is named as it is called, not as what it links to"
    assert client.run("shell", [shell["path"], "-c", "echo $((6 * 7))"], cwd="/ws") == (0, "42\n")
    assert client.run("first", "echo $PPID; exit 3", cwd="/ws") == (3, "1\n"), "the server is the first process"
    assert client.run("write", "echo x > made && cat made && rm made", cwd="/ws") == (0, "x\n")
    client.ok("fs/getMetadata", {"path": "file:///ws", "sandbox": None})

    missing = client.call("process/start", start("x", ["/no/such"], cwd="/ws"))
    assert missing["error"]["data"]["kind"] == "spawnNotFound"
    missing = client.call("process/start", start("y", ["/bin/sh"], cwd="/no/directory"))
    assert "/no/directory" in missing["error"]["message"]


def orphans_are_reaped(client):
    script = "(sleep 0.2; exit 3) & setsid sh -c 'sleep 0.3 & exec true' & exit 5"
    assert client.run("orphans", script, cwd="/")[0] == 5
    names = iter(range(1000))

    def nobody_is_left():
        states = "for s in /proc/[0-9]*/stat; do read -r line < $s && echo \"$line\"; done 2>/dev/null"
        _, output = client.run(f"states{next(names)}", states, cwd="/")
        return not [line for line in output.splitlines() if "(sleep)" in line or ") Z " in line]

    wait_until(nobody_is_left, "orphans have ended and are reaped")


def a_sandbox_that_reads_everything(client):
    script = "echo in; echo x > kept || echo denied"
    code, output = client.run("reads", script, cwd="/ws", sandbox=policy("/ws", False))
    assert code == 0 and output.startswith("in\n") and output.endswith("denied\n"), output
    assert client.run("look", "ls", cwd="/ws") == (0, "")


def a_writable_workspace(client):
    response = client.call("process/start", start("writes", WRITES, cwd="/ws", sandbox=policy("/ws", True)))
    if "error" in response:
        assert response["error"]["data"]["kind"] == "sandboxUnavailable", response
        assert "sandbox.accept_gaps" in response["error"]["message"], "the reason says what would help"
        return
    code, output = client.end("writes")
    assert code == 0 and output.startswith("x\n") and output.endswith("denied\n"), output


@pytest.mark.parametrize("image", IMAGES)
def test_accepted_gaps_give_a_writable_workspace_without_namespaces(serve, image):
    accepted = "--env=EXEC_SERVER_SANDBOX_ACCEPT_GAPS=outsideMetadata,protectedMetadata"
    client = serve(image, [*LOCKED, "--user=54321:54321", accepted, WORKSPACE, OUTSIDE])
    code, output = client.run("w", WRITES, cwd="/ws", sandbox=policy("/ws", True))
    assert code == 0 and output.startswith("x\n") and output.endswith("denied\n"), output


def test_user_ids_are_those_of_the_container(serve):
    for user, uid in [("0:0", "0"), ("54321:0", "54321")]:
        assert serve("daemon", [f"--user={user}"]).run("id", "id -u", cwd="/") == (0, f"{uid}\n")
    assert serve("daemon").run("id", "id -u; id -g", cwd="/") == (0, "65532\n0\n")


def test_the_daemon_stops_within_its_drain(daemon):
    name = daemon()
    log = subprocess.Popen(
        [*PODMAN, "exec", name, "exec-server", "run", "--url", "ws://127.0.0.1:8765"]
        + ["--token-file", "/var/lib/exec-server/token", "--", "sh", "-c", "trap 'echo cleaned; exit 7' TERM; echo up; while :; do sleep 0.1; done"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert log.stdout.readline() == "up\n"
    began = time.monotonic()
    podman("stop", "--time=10", name)
    assert time.monotonic() - began < 8, "SIGTERM ended it, not SIGKILL"
    assert json.loads(podman("inspect", name))[0]["State"]["ExitCode"] == 0
    log.wait(timeout=10)


@pytest.mark.parametrize(
    "options",
    [[], ["--user=54321:54321"], ["--read-only", "--tmpfs=/var/lib/exec-server", "--user=54321:54321", "--cap-drop=all"]],
    ids=["as the image says", "a user that nobody knows", "read-only, with a place for the token"],
)
def test_the_daemon_makes_a_token_and_serves_loopback(daemon, options):
    name = daemon(*options)
    command = ["exec", name, "exec-server", "run", "--url", "ws://127.0.0.1:8765"]
    assert podman(*command, "--token-file", "/var/lib/exec-server/token", "--", "echo", "hi") == "hi"
    refused = subprocess.run([*PODMAN, *command, "--", "echo", "hi"], capture_output=True, text=True)
    assert refused.returncode != 0 and "401" in refused.stderr


def test_a_token_that_cannot_be_kept_stops_the_start():
    outcome = subprocess.run(run("daemon", ["--read-only", "--user=54321:54321"]), capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 1 and "/var/lib/exec-server" in outcome.stderr


def test_the_health_check_of_the_image(daemon):
    name = daemon()
    podman("healthcheck", "run", name)


def test_sizes():
    def megabytes(image):
        return json.loads(podman("image", "inspect", f"localhost/{image}"))[0]["Size"] / 1e6

    assert megabytes("daemon") < 30
    assert megabytes("binary") < 25


@pytest.mark.parametrize("nsswitch", ["hosts: files dns", "hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns"])
def test_names_are_resolved_without_the_modules_of_another_libc(tmp_path, nsswitch):
    """The static program has `files` and `dns` in it. What else an image names must neither be loaded nor be missed."""
    (tmp_path / "nsswitch.conf").write_text(nsswitch + "\n")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost here.test\n")
    volumes = [f"--volume={tmp_path}/{name}:/etc/{name}:ro" for name in ("nsswitch.conf", "hosts")]
    server = subprocess.Popen(
        run("cases", volumes, ["--listen", "ws://here.test:0"]), stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout.readline().startswith("ws://127.0.0.1:")
    finally:
        server.terminate()
        server.wait(timeout=20)
