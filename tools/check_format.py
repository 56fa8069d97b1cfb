#!/usr/bin/env python3
"""Checks that the C++ source is as clang-format 14 writes it (other versions differ in places)."""

import re
import shutil
import subprocess
import sys

import checks

VERSION = 14


def formatter():
    """The command of the right version, or None."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        command = shutil.which(name)
        if not command:
            continue
        run = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
        found = re.search(r"version (\d+)", run.stdout)
        if found and int(found[1]) == VERSION:
            return command
    return None


def check(root):
    command = formatter()
    if not command:
        print(f"skipped: clang-format {VERSION} is not installed")
        return checks.SKIPPED
    sources = checks.files(root, ["src", "tests", "bench"], {".h", ".cpp"})
    run = subprocess.run([command, "--dry-run", "-Werror", "--style=file", *map(str, sources)],
                         capture_output=True, text=True, check=False)
    places = [line for line in run.stderr.splitlines() if ": error:" in line]
    if run.returncode and not places:
        places = [run.stderr]
    wrong = sorted({place.split(":")[0] for place in places})
    for name in wrong:
        print(f"clang-format -i {name}")
    return checks.report("format", places[:20], f"{len(sources)} files, {len(wrong)} to format")


def self_test():
    style = {".clang-format": "BasedOnStyle: Google\nColumnLimit: 100\n"}
    return checks.self_test(__file__, {**style, "src/a.cpp": "int a = 1;\n"},
                            {"code should be clang-formatted": {"src/b.h": "int  b=1 ;\n"}})


if __name__ == "__main__":
    args = checks.parser(__doc__.splitlines()[0]).parse_args()
    sys.exit(self_test() if args.self_test else check(args.root))
