#!/usr/bin/env python3
"""Checks that docs/samplers.md knows what the program has.

Every sampler, schedule, source of noise and guidance rule that `ebb samplers --json` lists is named
in backquotes in docs/samplers.md, and every sampler has a picture docs/samplers/<name>.svg that the
page shows; there are no other pictures. tools/sampler_pages.py mends it. README.md says how many
samplers there are.
"""

import json
import pathlib
import re
import subprocess
import sys

import checks

KINDS = {"samplers": "sampler", "schedules": "schedule", "noise": "source of noise",
         "guidance_rules": "guidance rule"}


def check(root, facts):
    page = (root / "docs/samplers.md").read_text()
    violations, count = [], 0
    for kind, word in KINDS.items():
        for thing in facts[kind]:
            count += 1
            if f"`{thing['name']}`" not in page:
                violations.append(f"docs/samplers.md does not name the {word} {thing['name']}")
    samplers = {s["name"] for s in facts["samplers"]}
    pictures = {p.stem for p in (root / "docs/samplers").glob("*.svg")}
    for name in sorted(samplers):
        if name not in pictures:
            violations.append(f"docs/samplers/{name}.svg is missing")
        if f"(samplers/{name}.svg)" not in page:
            violations.append(f"docs/samplers.md does not show samplers/{name}.svg")
    for name in sorted(pictures - samplers):
        violations.append(f"docs/samplers/{name}.svg belongs to no sampler")
    said = re.search(r"^\| Samplers \| (\d+), with", (root / "README.md").read_text(), re.M)
    if not said or int(said[1]) != len(samplers):
        violations.append(f"README.md does not say `| Samplers | {len(samplers)}, with`")
    return checks.report("sampler_pages", violations, f"{count} names, {len(pictures)} pictures")


def self_test():
    facts = {"samplers": [{"name": "euler"}], "schedules": [{"name": "karras"}],
             "noise": [{"name": "nv"}], "guidance_rules": [{"name": "cfg"}]}
    text = "`euler` `karras` `nv` `cfg` ![euler](samplers/euler.svg)"
    good = {"docs/samplers.md": text, "docs/samplers/euler.svg": "<svg/>",
            "README.md": "| Samplers | 1, with", "facts.json": json.dumps(facts)}
    two = {**facts, "samplers": [{"name": "euler"}, {"name": "heun"}]}
    bad = {f"does not name the {word} {facts[kind][0]['name']}": {
               "docs/samplers.md": text.replace(f"`{facts[kind][0]['name']}`", "")}
           for kind, word in KINDS.items()}
    bad["does not show samplers/euler.svg"] = {"docs/samplers.md": "`euler` `karras` `nv` `cfg`"}
    bad["docs/samplers/heun.svg is missing"] = {"facts.json": json.dumps(two)}
    bad["does not say `| Samplers | 1, with`"] = {"README.md": "| Samplers | 2, with"}
    bad["heun.svg belongs to no sampler"] = {"docs/samplers/heun.svg": "<svg/>"}
    return checks.self_test(__file__, good, bad)


def facts_of(args):
    """From the program, or from a file of what it said."""
    if not args.ebb:
        return json.loads((args.root / "facts.json").read_text())
    command = [args.ebb, "samplers", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = checks.parser(__doc__.splitlines()[0])
    parser.add_argument("--ebb", type=pathlib.Path, help="the program; none: facts.json")
    args = parser.parse_args()
    return self_test() if args.self_test else check(args.root, facts_of(args))


if __name__ == "__main__":
    sys.exit(main())
