"""Figures of the load generator as a table in Markdown.

    python3 benches/load_table.py FIGURES COMMAND

FIGURES has a line of JSON for each scenario, COMMAND is what they were taken with. Bold is where this server is behind.
"""

import json
import sys

import machine

LATENCY = ["p50_us", "p99_us"]
# Scenario, variant, figures; in the order of the table.
ROWS = [
    ("startup", "cold", ["exec_to_url_ms", "exec_to_handshake_ms", "idle_rss_mib", "binary_mib"]),
    ("rpc", "status-sequential", LATENCY),
    ("rpc", "status-pipelined-64", ["calls_per_s", "server_cpu_us_per_call"]),
    ("rpc", "status-pipelined-4conn", ["calls_per_s"]),
    ("rpc", "status-behind-200ms-poll", ["p50_us"]),
    ("spawn", "pipe-1", [*LATENCY, "server_cpu_us_per_proc"]),
    ("spawn", "pipe-8", ["p50_us", "procs_per_s"]),
    ("spawn", "pipe-32", ["p50_us", "procs_per_s"]),
    ("spawn", "tty-1", LATENCY),
    ("spawn", "tty-8", ["p50_us", "procs_per_s"]),
    ("spawn", "tty-32", ["p50_us", "procs_per_s"]),
    ("spawn", "pipe-4conn-x8", ["procs_per_s"]),
    *[("echo", variant, ["p50_us", "p99_us", "ack_p50_us"]) for variant in ("pipe-64b", "pipe-16k", "pty-64b", "pty-2k")],
    *[
        ("stream", variant, ["mib_per_s", "server_cpu_s_per_gib", "peak_rss_growth_mib", "lost_bytes"])
        for variant in (
            "notify-binary", "notify-text", "notify-head", "notify-small-writes", "notify-pty", "poll-binary",
        )
    ],
    *[("fs", f"readFile-{size}", LATENCY) for size in ("1k", "1m", "40m")],
    *[("fs", f"writeFile-{size}", LATENCY) for size in ("1k", "1m", "8m", "40m")],
    ("fs", "readBlock-1m-depth1", ["mib_per_s"]),
    ("fs", "readBlock-1m-depth4", ["mib_per_s"]),
    ("fs", "getMetadata", [*LATENCY, "pipelined32_calls_per_s"]),
    ("fs", "readDirectory-10k", ["p50_us"]),
    ("fs", "walk-50k", ["entries_per_s"]),
    ("fs", "status-behind-walk", ["p50_us"]),
    *[
        ("sandbox", f"spawn-{policy}", ["p50_us", "p99_us", "procs_per_s_at_8", "child_cpu_ms_per_proc"])
        for policy in ("read-only", "workspace-write", "workspace-write-tty")
    ],
    *[
        ("sandbox", variant, ["p50_us"])
        for variant in (
            "readFile-1k", "readFile-1m", "getMetadata", "writeFile-1k", "readFile-1k-narrow", "getMetadata-narrow",
        )
    ],
    ("snapshot", "profile-each-time", ["p50_us"]),
    ("snapshot", "snapshot-first", ["first_us"]),
    ("snapshot", "snapshot-next", ["p50_us", "state_restored"]),
    ("sessions", "idle-1000", ["rss_kib_per_session", "connect_p50_us", "idle_cpu_ms_per_s"]),
    ("sessions", "resume", LATENCY),
    *[
        ("sessions", variant, ["start_200_ms", "rss_kib_per_process", "fds_per_process", "terminate_200_ms"])
        for variant in ("sleep-200-pipe", "sleep-200-tty")
    ],
    ("slow", "reader-stopped", ["peak_rss_growth_mib", "other_status_p99_us", "other_spawn_p50_us"]),
    ("slow", "neighbour-floods", [
        "other_status_p50_us", "other_status_p99_us", "other_spawn_p50_us", "flood_mib_per_s",
    ]),
    ("slow", "same-connection-flood", ["status_p50_us", "status_p99_us", "terminate_to_closed_ms"]),
]


def lines(scenarios):
    for scenario, variant, names in ROWS:
        figures = scenarios.get(scenario, {}).get("variants", {}).get(variant, {})
        for name in names:
            if name in figures:
                yield f"| {scenario} | {variant} | {name} | {cells(figures[name])} |"
            else:
                yield f"| {scenario} | {variant} | {name} | not measured | | |"


def cells(figure):
    ratio = figure.get("ratio")
    if ratio is None:
        shown = ""
    else:
        shown = f"{short(ratio)} ({short(figure['ratioMin'])}..{short(figure['ratioMax'])})"
        if ratio > 1 if figure.get("better") == "lower" else ratio < 1:
            shown = f"**{shown}**"
    return f"{short(figure['value'])} | {short(figure.get('vs'))} | {shown}"


def short(value):
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def main():
    file, command = sys.argv[1:]
    with open(file) as text:
        scenarios = {each["scenario"]: each for each in map(json.loads, text)}
    first = next(iter(scenarios.values()))
    print(f"Against `{first['vs']}`: `{command}`. {machine.described(first['server'])}\n")
    print("| scenario | variant | figure | this server | other | ratio (least..most) |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    print(*lines(scenarios), sep="\n")
    for each in scenarios.values():
        for error in each.get("errors", []):
            print(f"\n`{each['scenario']}` has failed: {error}")
    print()


main()
