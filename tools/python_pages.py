#!/usr/bin/env python3
"""Writes the list of functions in docs/python.md from python/ebb_kernels/ops.py.

    python3 tools/python_pages.py

What stands between `<!-- begin functions -->` and `<!-- end functions -->` is written anew, from
the signatures and docstrings; neither torch nor the library is needed.
tools/check_python_pages.py says whether the page is old.
"""

import ast
import pathlib
import re

PAGE, SOURCE = "docs/python.md", "python/ebb_kernels/ops.py"
MARKED = re.compile(r"(<!-- begin functions -->\n).*?(<!-- end functions -->)", re.S)


def signature(function):
    """`name(x, weight=None, *, eps=1e-6)`, as it is written."""
    return f"{function.name}({ast.unparse(function.args)})"


def functions(source):
    """The public functions of a module's text: signature and docstring each."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            paragraphs = ast.get_docstring(node).split("\n\n")
            yield signature(node), [" ".join(p.split()) for p in paragraphs]


def listing(source):
    lines = []
    for text, paragraphs in functions(source):
        lines.append(f"- **`{text}`**")
        for p in paragraphs:
            code = p.startswith(("map(",))  # an example
            lines.append(f"  <br>`{p}`" if code else f"  <br>{p}")
    return "\n".join(lines)


def page_with_functions(root):
    """The page as it is to be."""
    page = (root / PAGE).read_text()
    if not MARKED.search(page):
        raise SystemExit(f"{PAGE} has no <!-- begin functions --> and <!-- end functions -->")
    text = listing((root / SOURCE).read_text())
    return MARKED.sub(lambda m: f"{m[1]}{text}\n{m[2]}", page)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    (root / PAGE).write_text(page_with_functions(root))


if __name__ == "__main__":
    main()
