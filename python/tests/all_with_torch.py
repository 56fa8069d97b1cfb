"""Runs all tests with a Python that has torch, diffusers and transformers: EBB_TORCH_PYTHON, the one
that `scripts/setup --torch` makes, or this one. Exits with 77, and says so, where none has."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEEDED = "import torch, diffusers, transformers, accelerate"
SKIPPED = 77


def candidates():
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [os.environ.get("EBB_TORCH_PYTHON"), cache / "ebb/torch/bin/python", sys.executable]


def has_torch(python):
    try:
        return subprocess.run([python, "-c", NEEDED], capture_output=True).returncode == 0
    except OSError:
        return False


def main():
    python = next((p for p in candidates() if p and has_torch(p)), None)
    if python is None:
        print("no Python with torch, diffusers, transformers and accelerate was found; "
              "scripts/setup --torch makes one")
        return SKIPPED
    paths = os.pathsep.join([str(HERE.parent), str(HERE)])
    # A process each: what one test file imports and warns of is not the next one's. The wheel has a
    # test of its own.
    failed = []
    for file in sorted(HERE.glob("test_*.py")):
        if file.stem == "test_wheel":
            continue
        command = [python, "-B", "-m", "unittest", file.stem]
        print(f"== {file.stem}", flush=True)
        if subprocess.run(command, cwd=HERE, env=os.environ | {"PYTHONPATH": paths}).returncode:
            failed.append(file.stem)
    print("failed: " + ", ".join(failed) if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
