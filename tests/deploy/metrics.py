"""Whether the metrics that files name are there: `metrics.py SERVER PROMTOOL FILE...` starts the server and asks it."""

import pathlib
import re
import subprocess
import sys
import urllib.request


def main(server, promtool, *files):
    text = ask(server)
    subprocess.run([promtool, "check", "metrics"], input=text, text=True, check=True)
    there = set(names(text))
    faults = [
        f"{file}: there is no metric {name}"
        for file in files
        for name in sorted(set(re.findall(r"exec_server_\w+", pathlib.Path(file).read_text(encoding="utf-8"))) - there)
    ]
    print("\n".join(faults) or f"every metric that is named exists")
    return 1 if faults else 0


def ask(server):
    child = subprocess.Popen([server, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        url = child.stdout.readline().strip().replace("ws://", "http://")
        return urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode()
    finally:
        child.terminate()
        child.wait()


def names(text):
    """The names that a query may use."""
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
        yield name
        if kind == "histogram":
            yield from (name + suffix for suffix in ("_bucket", "_sum", "_count"))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
