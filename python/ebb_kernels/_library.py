"""libebb_kernels.so: found, loaded, and asked for its functions."""

import ctypes
import functools
import os
from pathlib import Path


class LibraryError(RuntimeError):
    pass


def path() -> Path:
    """The shared object: EBB_KERNELS_LIBRARY, or the one in this package."""
    chosen = os.environ.get("EBB_KERNELS_LIBRARY")
    found = Path(chosen) if chosen else Path(__file__).parent / "lib" / "libebb_kernels.so"
    if not found.is_file():
        raise LibraryError(f"ebb_kernels: there is no {found}")
    return found


@functools.cache
def load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(path()))
    library.ebb_kernels_schema.restype = ctypes.c_char_p
    library.ebb_kernels_error.restype = ctypes.c_char_p
    library.ebb_kernels_version.restype = ctypes.c_char_p
    return library


def schemas() -> list[str]:
    """One "name(Tensor x, ...) -> Tensor" a function."""
    out = []
    while (text := load().ebb_kernels_schema(len(out))) is not None:
        out.append(text.decode())
    return out


def register(namespace: str, key: str) -> None:
    """Gives the operators of a namespace ebb's kernels for a dispatch key of torch."""
    if load().ebb_kernels_register_torch(namespace.encode(), key.encode()):
        raise LibraryError(load().ebb_kernels_error().decode())
