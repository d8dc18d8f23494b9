"""What figures were taken on, in words."""

import os
import pathlib
import platform
import subprocess
import time


def described():
    with open("/proc/cpuinfo") as lines:
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    processor = models[0] if models else platform.machine()
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"Commit {commit()}, {day}, {os.cpu_count()} cores ({processor}), Linux {platform.release()}."


def commit():
    checkout = pathlib.Path(__file__).parent
    said = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=checkout, capture_output=True, text=True)
    return said.stdout.strip() or "unknown"
