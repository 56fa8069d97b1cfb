#!/usr/bin/env python3
"""Checks that the documentation is true where a program can tell.

  - relative links resolve; a link to `file.md#section` needs a heading of that name;
  - paths of the tree that a document names exist (src/, tests/, tools/, ... with a slash); of one
    with a placeholder, `src/ops/<op>/op.h`, the part before it. In a document under src/, names in
    backquotes like `graph.h` and `simd/` as well, beside it, from src/ or in the folder that a row
    of a table begins with;
  - C++ in a document is a quotation: the first line of the block is a comment with the file's path,
    and the rest occurs in that file, whitespace aside. A line `// ...` stands for lines left out.
    Blocks of other languages may be quotations in the same way (`# path`);
  - an open end in documents or source has its reason or number in parentheses behind the word.

HTML comments are not looked at.
"""

import re
import sys
import urllib.parse

import checks

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
OPEN_END = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\()")
FENCE = re.compile(r"^(```|~~~)(.*?)\n(.*?)^\1[^\n]*$", re.S | re.M)
COMMENT = re.compile(r"<!--.*?-->", re.S)
PATH = re.compile(r"(?<![\w./<>-])(?:src|tests|tools|scripts|cmake|docs|bench)/[\w./-]*")
NAME = re.compile(r"`([\w./-]+(?:\.(?:h|cpp|cu|md)|/))`")
# The folder that a row of a table is about.
ROOM = re.compile(r"^\| `([\w./-]+/)`")
MARK = re.compile(r"\s*(?://|#)\s*([\w.-]+(?:/[\w.-]+)*)\s*$")
LEFT_OUT = re.compile(r"\s*(?://|#)\s*\.\.\.\s*$")


def blank(match):
    """Nothing but the newlines, so that line numbers stay."""
    return "\n" * match[0].count("\n")


def anchors(text):
    """The anchors that a Markdown text's headings make."""
    found = set()
    for heading in re.findall(r"^#+\s+(.*)$", FENCE.sub("", text), re.M):
        words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        found.add(words.replace(" ", "-"))
    return found


def link_violation(path, target, root):
    """What is wrong with a link of the file `path`, or None."""
    if re.match(r"[a-z]+:", target):
        return None
    file, _, section = urllib.parse.unquote(target).partition("#")
    to = path if not file else (root / file[1:] if file[0] == "/" else path.parent / file)
    if not to.exists():
        return f"{target} does not exist"
    if section and to.suffix == ".md" and section not in anchors(to.read_text()):
        return f"{target} names no heading of {to.name}"
    return None


def squeezed(text):
    return re.sub(r"\s+", "", text)


def quotation_violation(language, block, root):
    """What is wrong with a fenced block, or None."""
    lines = block.splitlines()
    mark = MARK.match(lines[0]) if lines else None
    if not mark or not (root / mark[1]).is_file():
        if language.strip() == "cpp":
            return "C++ must begin with a comment that names its file of the tree"
        return None
    file, at, part = squeezed((root / mark[1]).read_text()), 0, []
    for line in [*lines[1:], "// ..."]:
        if not LEFT_OUT.match(line):
            part.append(line)
            continue
        text = squeezed("".join(part))
        found = file.find(text, at)
        if found < 0:
            first = next(p.strip() for p in part if p.strip())
            return f"{mark[1]} does not have the lines from `{first}`"
        at, part = found + len(text), []
    return None


def check_document(path, root):
    """Yields (line number, violation, or None for a link in order)."""
    text = COMMENT.sub(blank, path.read_text())
    for match in FENCE.finditer(text):
        wrong = quotation_violation(match[2], match[3], root)
        if wrong:
            yield text.count("\n", 0, match.start()) + 1, wrong
    for number, line in enumerate(text.splitlines(), 1):
        for target in PATH.findall(re.sub(r"\]\([^)]*\)", "]", line)):
            if not (root / target.rstrip(".-")).exists():
                yield number, f"{target.rstrip('.-')} is not in the tree"
        if path.is_relative_to(root / "src"):
            rooms = [path.parent / room for room in ROOM.findall(line)]
            for name in NAME.findall(line):
                bases = [path.parent, root / "src", root, *rooms]
                if not any((base / name).exists() for base in bases):
                    yield number, f"{name} is not beside it"
    # code keeps its lines but has no links
    for number, line in enumerate(FENCE.sub(blank, text).splitlines(), 1):
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            yield number, link_violation(path, target, root)


def check(root):
    documents = checks.files(root, ["docs", "src", "tests", "tools", "bench", "examples"], {".md"})
    documents += sorted(root.glob("*.md"))
    violations, links = [], 0
    for path in documents:
        for number, wrong in check_document(path, root):
            links += wrong is None
            if wrong:
                violations.append(f"{path.relative_to(root)}:{number}: {wrong}")
    sources = checks.files(root, ["src", "tests", "tools", "bench", "scripts", "cmake"],
                           {".h", ".cpp", ".cu", ".py", ".cmake", ""})
    for path in documents + sources:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = OPEN_END.search(line)
            if match:
                violations.append(f"{path.relative_to(root)}:{number}: {match[1]} without reason")
    return checks.report("docs", violations, f"{len(documents)} documents, {links} good links")


def self_test():
    word = "TO" + "DO"
    quote = "```cpp\n// src/b.cpp\n{}\n```\n".format
    good = {
        "README.md": "# Top\n[a](docs/a.md#two-words) [w](https://example.org) `[x](y)`\n"
                     "<!-- docs/none.png [x](none.md) -->\nsrc/<name>.cpp, src/b.cpp. /x/src/no\n",
        "docs/a.md": f"# Two words\n[up](../README.md)\n```\n[x](no.md)\n```\n{word}(#7): later\n"
                     + quote("int f() { return 1; }\n// ...\nint h();")
                     + "```\n# not a path\n```\n",
        "src/x/README.md": "`b.cpp` and `../x/` and `docs/`, `op<x>.h`\n| `y/` | `c.h` |\n",
        "src/x/y/c.h": "",
        "src/b.cpp": "int f() {\n  return 1;\n}\nint g();\nint h();\n",
    }
    bad = {
        "no.md does not exist": {"docs/b.md": "[x](no.md)\n"},
        "names no heading": {"docs/b.md": "[x](a.md#three-words)\n"},
        "src/a.cpp:2: " + word: {"src/a.cpp": f"\n// {word}: later\n"},
        "docs/b.md:2: src/none.h is not in the tree": {"docs/b.md": "\n`src/none.h`\n"},
        "src/no/ is not in the tree": {"docs/b.md": "```\nsrc/no/<op>/op.h\n```\n"},
        "src/x/README.md:1: a.h is not beside it": {"src/x/README.md": "`a.h`\n"},
        "does not have the lines from `int k();`": {"docs/b.md": quote("int k();")},
        "does not have the lines from `int g();`": {
            "docs/b.md": quote("int h();\n// ...\nint g();")},
        "does not have the lines from `int f()`": {"src/b.cpp": "int f();\n",
                                                   "docs/a.md": "# Two words\n",
                                                   "docs/b.md": quote("int f()\n{ return 1; }")},
        "docs/b.md:2: C++ must begin": {"docs/b.md": "\n```cpp\nint f();\n```\n"},
    }
    return checks.self_test(__file__, good, bad)


if __name__ == "__main__":
    args = checks.parser(__doc__.splitlines()[0]).parse_args()
    sys.exit(self_test() if args.self_test else check(args.root))
