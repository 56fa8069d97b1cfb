"""libebb_kernels.so: found, loaded, and asked for its functions."""

import ctypes
import functools
import os
from pathlib import Path
from typing import NamedTuple


class LibraryError(RuntimeError):
    pass


def path() -> Path:
    """The shared object: EBB_KERNELS_LIBRARY, or the one in this package."""
    chosen = os.environ.get("EBB_KERNELS_LIBRARY")
    found = Path(chosen) if chosen else Path(__file__).parent / "lib" / "libebb_kernels.so"
    if not found.is_file():
        raise LibraryError(f"ebb_kernels: there is no {found}")
    return found


_full = []  # not empty: the library gives no more numbers


@functools.cache
def load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(path()))
    library.ebb_kernels_schema.restype = ctypes.c_char_p
    library.ebb_kernels_numbered_schema.restype = ctypes.c_char_p
    library.ebb_kernels_error.restype = ctypes.c_char_p
    library.ebb_kernels_version.restype = ctypes.c_char_p
    library.ebb_kernels_attributes.restype = ctypes.c_int64
    library.ebb_kernels_same_gradient.restype = ctypes.c_int64
    return library


class Schemas(NamedTuple):
    """Of a function, "name(Tensor x, ...) -> Tensor"; the others where it has gradients."""

    forward: str
    numbered: str | None = None
    backward: str | None = None


def schemas() -> list[Schemas]:
    """Of all functions."""

    def text(of, index):
        found = of(index)
        return None if found is None else found.decode()

    library, out, index = load(), [], 0
    while forward := text(library.ebb_kernels_schema, index):
        out.append(Schemas(forward))
        if numbered := text(library.ebb_kernels_numbered_schema, index):
            index += 1  # its gradients
            out[-1] = Schemas(forward, numbered, text(library.ebb_kernels_schema, index))
        index += 1
    return out


def _is_said_by_text(value) -> bool:
    """Whether the library reads this value in an attribute's text, which a NUL ends."""
    return type(value) in (bool, int, float) and value == value or (
        type(value) is str and "\0" not in value
    )


def _texts(attributes: dict):
    """Attributes as the C interface takes them."""
    texts = [f"{name}={str(v).lower() if type(v) is bool else v}".encode()
             for name, v in attributes.items()]
    return (ctypes.c_char_p * len(texts))(*texts), len(texts)


def same_gradient(function: str, attributes: dict) -> int:
    """The bits of operands whose gradient is that of the result, for the same types."""
    if not all(map(_is_said_by_text, attributes.values())):
        return 0
    bits = load().ebb_kernels_same_gradient(function.encode(), *_texts(attributes))
    if bits < 0:
        raise LibraryError(load().ebb_kernels_error().decode())
    return bits


def number_of(function: str, attributes: dict) -> int | None:
    """The number that stands for attributes of a function; None: there is none for these."""
    if _full or not all(map(_is_said_by_text, attributes.values())):
        return None
    number = load().ebb_kernels_attributes(function.encode(), *_texts(attributes))
    if number == -1:
        _full.append(True)
    return None if number < 0 else number


def register(namespace: str, key: str) -> None:
    """Gives the operators of a namespace ebb's kernels for a dispatch key of torch."""
    if load().ebb_kernels_register_torch(namespace.encode(), key.encode()):
        raise LibraryError(load().ebb_kernels_error().decode())
