#!/usr/bin/env python3
"""Checks the page's files: bytes, lines, and that no text can become markup or come from elsewhere.

Usage: budget_test.py [FOLDER]
"""

import gzip
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES = 500
# The files of a page by the beginning of their names: bytes, bytes compressed, files. The page of
# training also reads what it shares with the first one.
BUDGETS = {"training.": (20_000, 7_500, 3), "": (96_000, 28_000, 10)}
SERVED = {".html", ".css", ".js"}
HTML = [
    (r"\sstyle\s*=", "a style attribute, which the Content-Security-Policy refuses"),
    (r"\son\w+\s*=", "an event attribute, which the Content-Security-Policy refuses"),
    (r"<script(?![^>]*\ssrc=)", "an inline script, which the Content-Security-Policy refuses"),
    (r"<style", "an inline style sheet, which the Content-Security-Policy refuses"),
]
ANY = [
    (r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser",
     "text that becomes markup"),
    (r"\beval\s*\(|new Function\b", "text that becomes a program"),
    (r"//(?!www\.w3\.org)(?:[\w-]+\.)+[a-z]{2,}", "an address of another server"),
]
LIMITS = ["most_side", "most_steps"]  # of requests, which the catalogue tells


def limits():
    text = (ROOT / "src/apps/server/request_limits.h").read_text()
    for name in LIMITS:
        number = re.search(rf"\b{name} = (\d+)", text)[1]
        yield rf"\b{number}\b", f"{name} of request_limits.h, which the catalogue tells"


def budget_faults(name, texts, limits):
    raw = sum(map(len, texts))
    packed = sum(len(gzip.compress(text, 9, mtime=0)) for text in texts)
    print(f"{name}: {len(texts)} files, {raw} bytes, {packed} compressed")
    for what, number, limit in zip(["bytes", "bytes compressed", "files"],
                                   [raw, packed, len(texts)], limits):
        if number > limit:
            yield f"{name}: {number} {what} (limit {limit})"


def faults(folder):
    files = sorted(path for path in folder.iterdir() if path.suffix in SERVED)
    texts = {path: path.read_bytes() for path in files}
    for begin, most in BUDGETS.items():
        own = {path: text for path, text in texts.items()
               if begin == next(filter(path.name.startswith, BUDGETS))}
        yield from budget_faults(folder / f"{begin}*", list(own.values()), most)
    if not {"index.html", "main.js", "style.css"} <= {path.name for path in files}:
        yield f"{folder}: index.html, main.js or style.css is missing"
    for path, text in texts.items():
        lines = text.decode().splitlines()
        if len(lines) > LINES:
            yield f"{path}: {len(lines)} lines (limit {LINES})"
        for pattern, what in ANY + list(limits()) + (HTML if path.suffix == ".html" else []):
            for number, line in enumerate(lines, 1):
                if re.search(pattern, line):
                    yield f"{path}:{number}: {what}"


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src/apps/server/page"
    found = list(faults(folder))
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
