"""Plots as SVG that do not change unless their figures do."""

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({
    "svg.fonttype": "none",
    "svg.hashsalt": "growth",
    "font.family": "sans-serif",
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
})
from matplotlib import pyplot  # noqa: E402

COLOURS = {"sessions": "#0072b2", "live processes": "#d55e00", "finished processes": "#009e73"}
PERCENTILES = {"P50Us": ("-", "median"), "P99Us": (":", "99th percentile")}


def write_all(rows, directory):
    growing = [row for row in rows if row["of"] != "floods"]
    lines(directory / "memory.svg", growing, [("kibEach", "-", "")], "Resident memory each", "KiB")
    for name, what in [("call", "A call (environment/status)"), ("start", "A start of /bin/true, to its close")]:
        figures = [(name + suffix, style, f", {label}") for suffix, (style, label) in PERCENTILES.items()]
        lines(directory / f"{name}s.svg", growing, figures, f"{what}, beside so many", "µs")
    floods(directory / "floods.svg", [row for row in rows if row["of"] == "floods"])


def lines(file, rows, figures, title, unit):
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for kind, colour in COLOURS.items():
        of_kind = [row for row in rows if row["of"] == kind]
        sizes = [row["size"] for row in of_kind]
        for key, style, label in figures:
            axes.plot(sizes, [row[key] for row in of_kind], style, color=colour, marker="o", markersize=4, label=kind + label)
    axes.set(xscale="log", title=title, ylabel=unit)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0)
    save(figure, axes, file)


def floods(file, rows):
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, colour in [("call", "#0072b2"), ("start", "#d55e00")]:
        for suffix, (style, label) in PERCENTILES.items():
            values = [row[name + suffix] for row in rows]
            axes.plot([row["size"] for row in rows], values, style, color=colour, marker="o", markersize=4, label=f"{name}, {label}")
    axes.set(yscale="log", title="A quiet session beside so many floods", ylabel="µs")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    save(figure, axes, file)


def save(figure, axes, file):
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
