"""How cost grows: memory, calls and starts beside 1 to 1,000 sessions and processes, 10,000 finished ones, and floods.

    python3 benches/growth PROGRAM DIRECTORY [--largest N]

Measures the server PROGRAM, writes `growth.json` and plots into DIRECTORY, and prints the tables in Markdown. Needs the
packages `websocket-client` and `matplotlib`; `scripts/growth` brings them.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import measure
import plot
import table

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import machine  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the server")
    parser.add_argument("directory", type=pathlib.Path, help="where the figures and plots go")
    parser.add_argument("--largest", type=int, default=10_000, help="leaves out what is larger (default: %(default)s)")
    arguments = parser.parse_args()

    began = time.monotonic()
    program = os.path.abspath(arguments.program)
    rows = measure.all_rows(program, arguments.largest)
    figures = {"taken": machine.described(program), "rows": rows}
    arguments.directory.mkdir(parents=True, exist_ok=True)
    (arguments.directory / "growth.json").write_text(json.dumps(figures, indent=1) + "\n")
    plot.write_all(rows, arguments.directory)
    print(table.markdown(figures))
    print(f"\nTaken in {time.monotonic() - began:.0f} s.")


main()
