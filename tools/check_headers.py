#!/usr/bin/env python3
"""Checks that every header of src/ compiles alone and starts with #pragma once."""

import concurrent.futures
import os
import re
import shlex
import subprocess
import sys

import checks


def first_includes(root):
    """Headers that a source file includes before all else: the build has compiled them alone."""
    first = re.compile(r'^#include [<"]([^">]+)[">]', re.M)
    found = (first.search(f.read_text()) for f in checks.files(root, ["src"], {".cpp"})
             if "cuda" not in f.as_posix())  # which not every build compiles
    return {f"src/{match[1]}" for match in found if match}


def violation(header, root, command, compiled):
    """What is wrong with one header, or None."""
    name = header.relative_to(root).as_posix()
    if "#pragma once" not in header.read_text():
        return f"{name}: has no #pragma once"
    if name in compiled:
        return None
    source = f'#include "{header.relative_to(root / "src").as_posix()}"\n'
    run = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return f"{name}: does not compile alone\n{run.stderr}" if run.returncode else None


def check(root, compiler, includes):
    headers = checks.files(root, ["src"], {".h"})
    command = [*shlex.split(compiler), "-x", "c++", "-std=c++20", "-fsyntax-only", "-fopenmp",
               "-Wall", "-Wextra", "-Werror", f"-I{root / 'src'}", *(f"-I{i}" for i in includes),
               "-"]
    compiled = first_includes(root)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda h: violation(h, root, command, compiled), headers)
    return checks.report("headers", [v for v in found if v], f"{len(headers)} headers")


def self_test(compiler):
    good = {"src/a.h": "#pragma once\n#include <vector>\nstruct A {\n  std::vector<int> v;\n};\n",
            # the build tells
            "src/c.h": "#pragma once\nstd::vector<int> c();\n",
            "src/c.cpp": '#include "c.h"\n'}
    bad = {
        "src/b.h: does not compile alone": {
            "src/b.h": "#pragma once\nstd::vector<int> v();\n",
            "src/d.cpp": '#include <vector>\n\n#include "b.h"\n'},
        "src/b.h: has no #pragma once": {"src/b.h": "struct B {};\n"},
    }
    return checks.self_test(__file__, good, bad, ["--compiler", compiler])


if __name__ == "__main__":
    parser = checks.parser(__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--include", action="append", default=[], help="another include folder")
    args = parser.parse_args()
    sys.exit(self_test(args.compiler) if args.self_test else
             check(args.root, args.compiler, args.include))
