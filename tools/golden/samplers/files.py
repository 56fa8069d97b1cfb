"""Writes golden files: numbers of fixed digits, one case a line."""

import json
import math


def digits(value, count):
    """The value with `count` significant digits in every number; what is not finite, as text."""
    if isinstance(value, dict):
        return {key: digits(v, count) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [digits(v, count) for v in value]
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    return float(f"{value:.{count}g}")


FULL = 64


def ends_and_sums(flat):
    """All of a short list; of a long one the first 8, the last 24 and four sums."""
    if len(flat) <= FULL:
        return {"values": flat}
    sums = [sum(flat), sum(v * v for v in flat),
            sum(v * math.sin(i) for i, v in enumerate(flat)),
            sum(v * math.cos(3 * i) for i, v in enumerate(flat))]
    return {"first": flat[:8], "last": flat[-24:], "sums": sums}


def write(path, head, cases, count=13):
    """{**head, "cases": [...]}, every entry of head and every case on a line of its own."""
    def line(value):
        return json.dumps(digits(value, count), separators=(",", ":"))

    rows = [f"{json.dumps(key)}: {line(value)}" for key, value in head.items()]
    rows.append('"cases": [\n' + ",\n".join(line(case) for case in cases) + "\n]")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    print(f"{path}: {len(cases)} cases, {path.stat().st_size} bytes")
