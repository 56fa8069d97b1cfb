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
    command = [python, "-B", "-m", "unittest", "discover", "-s", str(HERE)]
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}).returncode


if __name__ == "__main__":
    sys.exit(main())
