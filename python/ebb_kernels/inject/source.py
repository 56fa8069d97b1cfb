"""Digests of functions' sources, by which recipes know what they replace.

A digest is of the names of the parameters and of the text of the body without comments, docstring
and white space, so that annotations and formatting do not matter, and neither does the version of
Python. `python -m ebb_kernels.inject.source MODULE:CLASS PART...` prints one.
"""

import ast
import functools
import hashlib
import importlib
import inspect
import re
import sys
import textwrap


@functools.cache
def _text(function) -> str:
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    body = ast.parse(source).body[0].body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1 if documented and len(body) > 1 else 0].lineno
    text = "\n".join(source.splitlines()[first - 1 :])
    text = re.sub(r"\s+", "", re.sub(r"#.*", "", text))
    return ",".join(inspect.signature(function).parameters) + ":" + text


def _find(cls, part):
    """A part of what a class computes: "forward" or another method; "rotate_half()", a function of
    the module that the class is in; "package.module:Class.method". None where there is none."""
    if ":" in part:
        module, _, path = part.partition(":")
        found = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name, None)
        return found
    if part.endswith("()"):
        return getattr(sys.modules[cls.__module__], part[:-2], None)
    return getattr(cls, part, None)


@functools.cache
def digest(cls, parts) -> str | None:
    """Of a class' parts together. None: there is no source to read."""
    try:
        found = [_find(cls, part) for part in parts]
        text = "\n".join("" if f is None else _text(f) for f in found)
    except (OSError, TypeError, SyntaxError, ImportError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:12]


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    print(digest(getattr(importlib.import_module(module), name), tuple(sys.argv[2:])))
