"""Writes a variant of this package as the Hugging Face Hub's `kernels` library loads it:

python -m ebb_kernels.hub OUT [--backend cuda|cpu]

OUT/build/torch-stable-abi210-cu130-x86_64-linux/ then has the package, its shared object and
metadata.json. get_local_kernel("OUT") and LOCAL_KERNELS="owner/name=OUT" load it without a network.
The variant for the CPU has the functions in plain torch, for programs and tests without a GPU.
"""

import argparse
import hashlib
import json
import shutil
from pathlib import Path

import ebb_kernels

from . import _library

VERSION = 1  # a new one where something is added to, or taken from, __all__
VARIANTS = {
    "cuda": "torch-stable-abi210-cu130-x86_64-linux",
    "cpu": "torch-stable-abi210-cpu-x86_64-linux",
}
_ARCHITECTURES = ["7.5", "8.0", "8.6", "8.9", "9.0a", "10.0", "12.0"]
_LICENSE = "MIT"
_LEFT_OUT = ("__pycache__", "hub.py", "_namespace.py", "lib")

# Loaders of before 2026 look for a folder of the module's name.
_COMPATIBILITY = '''"""For older loaders: the package in the folder above."""

import importlib.util
import sys
from pathlib import Path

_file = Path(__file__).parent.parent / "__init__.py"
_spec = importlib.util.spec_from_file_location("{id}", _file)
_module = importlib.util.module_from_spec(_spec)
sys.modules["{id}"] = _module
_spec.loader.exec_module(_module)
globals().update({{k: v for k, v in vars(_module).items() if not k.startswith("__")}})
'''


def _identifier(folder: Path, backend: str) -> str:
    """Of the build: the namespace of its operators."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    content = hashlib.sha256()
    for file in files:
        content.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return f"_ebb_kernels_{backend}_{content.hexdigest()[:10]}"


def _metadata(identifier: str, backend: str) -> dict:
    described = {"type": backend}
    if backend == "cuda":
        described["archs"] = _ARCHITECTURES
    return {
        "name": "ebb-kernels",
        "id": identifier,
        "version": VERSION,
        "license": _LICENSE,
        "python-depends": [],
        "backend": described,
    }


def write(out, backend="cuda") -> Path:
    """Writes the variant of a backend under `out`/build, in place of the one there. Its folder."""
    folder = Path(out) / "build" / VARIANTS[backend]
    if folder.exists():
        shutil.rmtree(folder)
    package = Path(ebb_kernels.__file__).parent
    shutil.copytree(package, folder, ignore=lambda _, names: set(names) & set(_LEFT_OUT))
    (folder / "lib").mkdir()
    shutil.copy(_library.path(), folder / "lib" / "libebb_kernels.so")
    identifier = _identifier(folder, backend)
    (folder / "_namespace.py").write_text(f'NAMESPACE = "{identifier}"\n')
    (folder / "ebb_kernels").mkdir()
    (folder / "ebb_kernels" / "__init__.py").write_text(_COMPATIBILITY.format(id=identifier))
    text = json.dumps(_metadata(identifier, backend), indent=2)
    (folder / "metadata.json").write_text(text + "\n")
    return folder


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(prog="python -m ebb_kernels.hub", description=__doc__)
    arguments.add_argument("out")
    arguments.add_argument("--backend", choices=VARIANTS, default="cuda")
    given = arguments.parse_args()
    print(write(given.out, given.backend))
