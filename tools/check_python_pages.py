#!/usr/bin/env python3
"""Checks that the list of functions in docs/python.md is that of python/ebb_kernels/ops.py.

tools/python_pages.py writes it.
"""

import sys

import checks
import python_pages


def check(root):
    page = (root / python_pages.PAGE).read_text()
    violations = []
    if python_pages.page_with_functions(root) != page:
        violations.append(f"{python_pages.PAGE}: the list of functions is old; "
                          "tools/python_pages.py writes it")
    count = len(list(python_pages.functions((root / python_pages.SOURCE).read_text())))
    return checks.report("python_pages", violations, f"{count} functions")


def self_test():
    source = 'def norm(x, *, eps=1e-6):\n    """A norm."""\n\n\ndef _op():\n    pass\n'
    page = "<!-- begin functions -->\n{}\n<!-- end functions -->\n"
    listing = python_pages.listing(source)
    good = {python_pages.SOURCE: source, python_pages.PAGE: page.format(listing)}
    bad = {"the list of functions is old": {
               python_pages.PAGE: page.format(listing.replace("1e-06", "1e-05"))},
           "list of functions is old; tools/python_pages.py": {
               python_pages.SOURCE: source.replace("A norm.", "Another norm.")}}
    return checks.self_test(__file__, good, bad)


def main():
    args = checks.parser(__doc__.splitlines()[0]).parse_args()
    return self_test() if args.self_test else check(args.root)


if __name__ == "__main__":
    sys.exit(main())
