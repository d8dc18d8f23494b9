"""The figures as Markdown."""

COLUMNS = [
    ("beside", "of"),
    ("number", "size"),
    ("resident MiB", "residentKib"),
    ("KiB each", "kibEach"),
    ("MiB/s", "floodMibPerS"),
    ("call p50 µs", "callP50Us"),
    ("p99", "callP99Us"),
    ("start p50 µs", "startP50Us"),
    ("p99", "startP99Us"),
]


def markdown(figures):
    head = "| " + " | ".join(name for name, _ in COLUMNS) + " |"
    rule = "| --- |" + " ---: |" * (len(COLUMNS) - 1)
    body = ["| " + " | ".join(cell(row, key) for _, key in COLUMNS) + " |" for row in figures["rows"]]
    return "\n".join([figures["taken"], "", head, rule, *body])


def cell(row, key):
    if key == "residentKib":
        return f"{row[key] / 1024:.1f}" if key in row else ""
    value = row.get(key, "")
    return f"{value:,.0f}" if isinstance(value, float) and key != "kibEach" else str(value)
