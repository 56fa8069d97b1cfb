#!/usr/bin/env python3
"""Writes the generated parts of docs/samplers.md and the pictures in docs/samplers/.

    python3 tools/sampler_pages.py build/ebb

Runs the given program. What stands between `<!-- begin NAME -->` and `<!-- end NAME -->` is written
anew; all else in the page stays. tools/check_sampler_pages.py says whether something is missing.
"""

import argparse
import json
import pathlib
import re
import subprocess

COLUMNS = 2


def run(ebb, *arguments):
    return subprocess.run([ebb, "samplers", *arguments], check=True, capture_output=True,
                          text=True).stdout


def names_and_help(things):
    lines = ["| name | what it is |", "|---|---|"]
    lines += [f"| `{t['name']}` | {t['help'].replace('|', chr(92) + '|')} |" for t in things]
    return "\n".join(lines)


def sampler_list(samplers):
    lines = ["| name | kind | order | evaluations, draws a step | flow | what it is |",
             "|---|---|---|---|---|---|"]
    for s in samplers:
        order = f"{s['order']:g}" if s["order"] else ""
        cost = "its own" if s["adaptive"] else f"{s['evaluations']:g}, {s['draws']:.2g}"
        help_ = s["help"] + ("; needs guidance" if s["needs_uncond"] else "")
        lines.append(f"| `{s['name']}` | {s['kind']} | {order} | {cost} | "
                     f"{'yes' if s['flow'] else 'no'} | {help_} |")
    return "\n".join(lines)


def gallery(samplers):
    cells = [f"![{s['name']}](samplers/{s['name']}.svg)" for s in samplers]
    cells += [""] * (-len(cells) % COLUMNS)
    rows = [cells[i:i + COLUMNS] for i in range(0, len(cells), COLUMNS)]
    lines = ["|" + " |" * COLUMNS, "|" + "---|" * COLUMNS]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def write_pictures(ebb, folder):
    """Pictures of all samplers; those of samplers that are gone go too."""
    written = {pathlib.Path(line) for line in
               run(ebb, "gallery", "--out", str(folder)).split("\n") if line}
    for old in set(folder.glob("*.svg")) - written:
        old.unlink()


def between_markers(page, name, text):
    pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.S)
    if not pattern.search(page):
        raise SystemExit(f"the page has no part `{name}`")
    return pattern.sub(lambda m: f"{m[1]}\n{text.strip()}\n\n{m[2]}", page)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ebb", help="the program, build/ebb")
    args = parser.parse_args()
    docs = pathlib.Path(__file__).resolve().parent.parent / "docs"
    facts = json.loads(run(args.ebb, "--json"))
    parts = {
        "samplers": sampler_list(facts["samplers"]),
        "schedules": names_and_help(facts["schedules"]),
        "noise": names_and_help(facts["noise"]),
        "guidance": names_and_help(facts["guidance_rules"]),
        "errors": run(args.ebb, "table"),
        "gallery": gallery(facts["samplers"]),
    }
    write_pictures(args.ebb, docs / "samplers")
    path = docs / "samplers.md"
    page = path.read_text()
    for name, text in parts.items():
        page = between_markers(page, name, text)
    path.write_text(page)


if __name__ == "__main__":
    main()
