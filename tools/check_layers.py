#!/usr/bin/env python3
"""Checks the includes of src/ against layers.txt.

layers.txt has a line per folder: `folder: folders that it may include`. Every folder may include
itself, and only folders listed above it, so there is no cycle. Finer rules:
  - files of an op whose names start with `cpu`, or in its folder cpu/, are its CPU kernels: they
    include no backend but backend/cpu, and only CPU kernels include them; likewise `cuda`;
  - an op's other files include no backend;
  - includes in quotes are written from src/ and exist.
Tests and the benches of ops may include what they test.
"""

import re
import sys

import checks

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
FREE = re.compile(r"(^|[/_])test\.cpp$|^ops/.*/bench\.cpp$")
GENERATED = "ebb/gen/"


def read_layers(root):
    """{folder: allowed folders}, and the violations of the file itself."""
    layers, violations = {}, []
    for number, line in enumerate((root / "layers.txt").read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        folder, _, allowed = (part.strip() for part in line.partition(":"))
        for name in allowed.split():
            if name not in layers:
                violations.append(f"layers.txt:{number}: {folder} may only list folders above"
                                  f" it, not {name}")
        layers[folder] = set(allowed.split()) | {folder}
    return layers, violations


def layer_of(path, layers):
    """The longest listed folder that holds `path` (relative to src/), or None."""
    parts = path.split("/")[:-1]
    for n in range(len(parts), 0, -1):
        if "/".join(parts[:n]) in layers:
            return "/".join(parts[:n])
    return None


def op_folder(path, src):
    """The folder of the op that `path` belongs to, or None."""
    if not path.startswith("ops/"):
        return None
    for folder in (src / path).parents:
        if folder == src:
            return None
        if (folder / "op.cpp").exists():
            return folder.relative_to(src).as_posix()
    return None


def kernel_backend(path, src):
    """The backend whose kernel file of an op `path` is, or None."""
    op = op_folder(path, src)
    match = re.match(r"(cpu|cuda)[_./]", path[len(op) + 1:]) if op else None
    return match[1] if match else None


def op_violation(path, included, src):
    """What is wrong by the rules of ops, or None."""
    name = path.rsplit("/", 1)[-1]
    mine, theirs = kernel_backend(path, src), kernel_backend(included, src)
    backend = included.split("/")[1] if included.startswith("backend/") else None
    if theirs and theirs != mine:
        return f"{included} is a kernel, only for {theirs} kernels"
    if op_folder(path, src) and backend and backend != mine:
        also = f" but backend/{mine}" if mine else ""
        return f"{name} of an op includes no backend{also}, not {included}"
    return None


def include_violation(path, included, layers, src):
    """What is wrong with `included` in `path` (both relative to src/), or None."""
    if included.startswith(GENERATED):
        return None
    if not (src / included).is_file():
        return f"{included} is not a file of src/ (includes are written from there)"
    wrong = op_violation(path, included, src)
    if wrong:
        return wrong
    here, there = layer_of(path, layers), layer_of(included, layers)
    if here is None:
        return "its folder is not in layers.txt"
    if there not in layers[here]:
        return f"{here} may not include {there or 'an unlisted folder'} ({included})"
    return None


def check(root):
    layers, violations = read_layers(root)
    src = root / "src"
    sources = checks.files(root, ["src"], {".h", ".cpp", ".cu", ".cuh"})
    edges = 0
    for source in sources:
        path = source.relative_to(src).as_posix()
        if FREE.search(path):
            continue
        for number, line in enumerate(source.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            edges += 1
            wrong = include_violation(path, match[1], layers, src)
            if wrong:
                violations.append(f"src/{path}:{number}: {wrong}")
    return checks.report("layers", violations, f"{len(sources)} files, {edges} includes")


def self_test():
    good = {
        "layers.txt": "base:\nbackend/cpu: base\nbackend/gpu: base\n"
                      "ops: base backend/cpu backend/gpu\napps: base ops\n",
        "src/base/a.h": "#include <vector>\n",
        "src/backend/cpu/x.h": '#include "base/a.h"\n',
        "src/backend/gpu/x.h": "",
        "src/ops/add/op.h": '#include "base/a.h"\n',
        "src/ops/add/op.cpp": '#include "ops/add/op.h"\n#include "ebb/gen/ops.inc"\n',
        "src/ops/add/cpu.cpp": '#include "backend/cpu/x.h"\n#include "ops/add/cpu_rows.h"\n',
        "src/ops/add/cpu_rows.h": '#include "backend/cpu/x.h"\n',
        "src/ops/add/cpu/columns.h": '#include "backend/cpu/x.h"\n',
        "src/ops/mul/op.cpp": '#include "ops/add/op.h"\n',
        "src/apps/main.cpp": '#include "ops/add/op.h"\n',
        "src/base/a_test.cpp": '#include "ops/add/op.h"\n',
    }
    bad = {
        "base may not include ops": {"src/base/b.h": '#include "ops/add/op.h"\n'},
        "apps may not include backend/cpu": {"src/apps/b.h": '#include "backend/cpu/x.h"\n'},
        "op.h of an op includes no backend,": {
            "src/ops/mul/op.h": '#include "backend/cpu/x.h"\n'},
        "no backend but backend/cpu": {"src/ops/mul/cpu.cpp": '#include "backend/gpu/x.h"\n'},
        "cpu_rows.h is a kernel, only for cpu": {
            "src/ops/mul/op.h": '#include "ops/add/cpu_rows.h"\n'},
        "columns.h is a kernel, only for cpu": {
            "src/ops/mul/op.h": '#include "ops/add/cpu/columns.h"\n'},
        "is not a file of src/": {"src/base/b.h": '#include "a.h"\n'},
        "not in layers.txt": {"src/new/b.h": '#include "base/a.h"\n'},
        "may only list folders above": {"layers.txt": "base: ops\nops: base\n"},
    }
    return checks.self_test(__file__, good, bad)


if __name__ == "__main__":
    args = checks.parser(__doc__.splitlines()[0]).parse_args()
    sys.exit(self_test() if args.self_test else check(args.root))
