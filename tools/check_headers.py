#!/usr/bin/env python3
"""Checks that every header of src/ compiles alone and starts with #pragma once.

A compiler's run takes half a second, most of it for headers of the standard library, so several
headers are compiled in one: a header may follow others in it if these bring in nothing that it
does not bring in itself. What it lacks is then missing as if it were alone.

Headers that a source file includes before all else were compiled by the build: there only headers
of the system may have come before, as precompiled ones do. For these headers it is enough that
those before bring in no others of the system.

All headers together are compiled once more: no two may define one name.
"""

import concurrent.futures
import os
import re
import shlex
import subprocess
import sys

import checks

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)


def first_includes(root):
    """Headers that a source file includes before all else, by their names in src/."""
    found = (INCLUDE.search(f.read_text()) for f in checks.files(root, ["src"], {".cpp"})
             if "cuda" not in f.as_posix())  # which not every build compiles
    return {match[1] for match in found if match}


def brought_in(header, texts, seen):
    """Adds to `seen` the names of all that a header includes, and its own."""
    seen.add(header)
    for name in INCLUDE.findall(texts.get(header, "")):
        if name not in seen:
            brought_in(name, texts, seen)
    return seen


def chains(brought):
    """Lists of headers of which each brings in all that those before it do."""
    out = []
    for header in sorted(brought, key=lambda h: (len(brought[h]), h)):
        fitting = [c for c in out if brought[c[-1]] <= brought[header]]
        if fitting:
            max(fitting, key=lambda c: len(brought[c[-1]])).append(header)
        else:
            out.append([header])
    return out


def compiled(headers, command):
    """What the compiler says about a source that includes the headers; "" if it compiles."""
    source = "".join(f'#include "{h}"\n' for h in headers)
    run = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return (run.stderr or "failed\n") if run.returncode else ""


def violations(chain, command):
    said = compiled(chain, command)
    if not said:
        return []
    alone = [(h, compiled([h], command)) for h in chain]
    return [f"src/{h}: does not compile alone\n{text}" for h, text in alone if text] or [
        f"src/{chain[-1]}: does not compile behind {', '.join(chain[:-1])}\n{said}"]


def check(root, compiler, includes):
    texts = {h.relative_to(root / "src").as_posix(): h.read_text()
             for h in checks.files(root, ["src"], {".h"})}
    # warnings as the build has them
    command = [*shlex.split(compiler), "-x", "c++", "-std=c++20", "-fsyntax-only", "-fopenmp",
               "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers",
               f"-I{root / 'src'}", *(f"-I{i}" for i in includes), "-"]
    found = [f"src/{h}: has no #pragma once" for h, t in texts.items() if "#pragma once" not in t]
    by_build = first_includes(root)
    brought = {h: brought_in(h, texts, set()) for h in texts}
    units = chains({h: b for h, b in brought.items() if h not in by_build})
    units += chains({h: b - texts.keys() for h, b in brought.items() if h in by_build})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        together = pool.submit(compiled, sorted(texts), command)
        for some in pool.map(lambda c: violations(c, command), units):
            found += some
    if together.result() and not found:
        found.append("the headers of src/ do not compile together: do two define one name?\n" +
                     together.result())
    return checks.report("headers", found, f"{len(texts)} headers, compiled in {len(units)} runs")


def self_test(compiler):
    vector = "#pragma once\nstd::vector<int> {}();\n"
    good = {"src/a.h": "#pragma once\n#include <vector>\nstruct A {\n  std::vector<int> v;\n};\n",
            "src/c.h": "#pragma once\n#include <vector>\nstd::vector<int> c();\n",
            "src/c.cpp": '#include "c.h"\n'}
    bad = {
        "src/b.h: does not compile alone": {
            "src/b.h": vector.format("b"), "src/d.cpp": '#include <vector>\n\n#include "b.h"\n'},
        # the build would not tell, where <vector> is precompiled
        "src/e.h: does not compile alone": {
            "src/e.h": vector.format("e"), "src/e.cpp": '#include "e.h"\n'},
        # it needs what another one of its size has
        "src/g.h: does not compile alone": {
            "src/f.h": "#pragma once\n#include <string>\n",
            "src/g.h": "#pragma once\n#include <map>\nstd::string g();\nstd::map<int, int> h();\n"},
        "src/b.h: has no #pragma once": {"src/b.h": "struct B {};\n"},
        "the headers of src/ do not compile together": {
            "src/b.h": "#pragma once\n#include <map>\nstruct B {};\n",
            "src/i.h": "#pragma once\n#include <string>\nenum class B { one };\n"},
    }
    return checks.self_test(__file__, good, bad, ["--compiler", compiler])


if __name__ == "__main__":
    parser = checks.parser(__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--include", action="append", default=[], help="another include folder")
    args = parser.parse_args()
    sys.exit(self_test(args.compiler) if args.self_test else
             check(args.root, args.compiler, args.include))
