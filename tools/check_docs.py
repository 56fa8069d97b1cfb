#!/usr/bin/env python3
"""Checks that relative links of the documentation resolve and that open ends give a reason.

A link to `file.md#section` needs a heading of that name. An open end in documents or source is
written with its reason or number in parentheses behind the word.
"""

import re
import sys
import urllib.parse

import checks

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
OPEN_END = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\()")
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.S | re.M)


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


def check(root):
    documents = checks.files(root, ["docs", "src", "tests", "tools", "bench", "examples"], {".md"})
    documents += sorted(root.glob("*.md"))
    violations, links = [], 0
    for path in documents:
        # code keeps its lines but has no links
        text = FENCE.sub(lambda m: "\n" * m[0].count("\n"), path.read_text())
        for number, line in enumerate(text.splitlines(), 1):
            for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                links += 1
                wrong = link_violation(path, target, root)
                if wrong:
                    violations.append(f"{path.relative_to(root)}:{number}: {wrong}")
    sources = checks.files(root, ["src", "tests", "tools", "bench", "scripts", "cmake"],
                           {".h", ".cpp", ".cu", ".py", ".cmake", ""})
    for path in documents + sources:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = OPEN_END.search(line)
            if match:
                violations.append(f"{path.relative_to(root)}:{number}: {match[1]} without reason")
    return checks.report("docs", violations, f"{len(documents)} documents, {links} links")


def self_test():
    word = "TO" + "DO"
    good = {
        "README.md": "# Top\n[a](docs/a.md#two-words) [w](https://example.org) `[x](y)`\n",
        "docs/a.md": f"# Two words\n[up](../README.md)\n```\n[x](no.md)\n```\n{word}(#7): later\n",
    }
    bad = {
        "no.md does not exist": {"docs/b.md": "[x](no.md)\n"},
        "names no heading": {"docs/b.md": "[x](a.md#three-words)\n"},
        "src/a.cpp:2: " + word: {"src/a.cpp": f"\n// {word}: later\n"},
    }
    return checks.self_test(__file__, good, bad)


if __name__ == "__main__":
    args = checks.parser(__doc__.splitlines()[0]).parse_args()
    sys.exit(self_test() if args.self_test else check(args.root))
