"""What figures were taken of and on, in words."""

import os
import platform
import subprocess
import time


def described(program):
    with open("/proc/cpuinfo") as lines:
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    processor = models[0] if models else platform.machine()
    day = time.strftime("%Y-%m-%d", time.gmtime())
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return f"{version}, {day}, {os.cpu_count()} cores ({processor}), Linux {platform.release()}."
