#!/usr/bin/env python3
"""Checks the budgets of the source: lines of a file, lines of a function, columns of a line.

Functions of C++ are found by matching braces, which is enough for code that is formatted.
Exceptions stand in budgets.txt, one a line: `file|function|line  path[:name]  limit  reason`.
An exception that is not needed any more is a violation too.
"""

import ast
import re
import sys

import checks

FILE, FUNCTION, LINE = 500, 60, 100
FOLDERS = ["src", "tests", "bench", "tools", "scripts", "cmake", "examples"]
CPP, OTHER = {".h", ".cpp", ".cu", ".cuh"}, {".py", ".cmake", ""}

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
MEMBER_INIT = re.compile(r"\)\s*(?:noexcept\s*)?:\s*[^:].*[\w>]\s*$|^\s*,\s*[\w:<>]+\s*$", re.S)


def blank(match):
    """The same lines without the text, so that line numbers stay."""
    return re.sub(r"[^\n]", " ", match[0])


def kind_of(header):
    """What the brace after `header` opens, outside of any function."""
    if re.search(r"\b(namespace|extern\s*$)", header):
        return "namespace"
    if re.search(r"\b(class|struct|union|enum)\b[^()]*$", header):
        return "class"
    if "(" in header and not re.search(r"[^=!<>]=[^=]", header.split("(")[0]):
        return "function"
    return "function" if re.search(r"=\s*\[[^\]]*\]", header) else "other"


def cpp_functions(text):
    """Yields (name, first line, lines) of every function body in C++ source."""
    text = DIRECTIVE.sub(blank, TOKEN.sub(blank, text))
    stack, start = [], 0
    for match in re.finditer(r"[{};]", text):
        at, c = match.start(), match[0]
        inside = any(kind in ("function", "other") for kind, _ in stack)
        if c == "{":
            header = text[start:at]
            init = not inside and bool(MEMBER_INIT.search(header))
            stack.append(("other" if inside or init else kind_of(header), start))
            if not init and not inside:
                start = at + 1
        elif c == "}":
            if not stack:
                return
            kind, begin = stack.pop()
            if kind == "function":
                header = text[begin:].lstrip()
                first = len(text) - len(header)
                line = text.count("\n", 0, first) + 1
                name = re.search(r"([\w~:]+)\s*\(", header)
                yield (name[1] if name else "lambda", line,
                       text.count("\n", first, at) + 1)
            # after the braces of a member initialiser the constructor's header goes on
            if kind != "other":
                start = at + 1
        elif not inside:
            start = at + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def read_exceptions(root):
    """{(kind, path[:name]): limit}; throws ValueError on a line without a reason."""
    path, found = root / "budgets.txt", {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            words = line.split(maxsplit=3)
            if len(words) < 4:
                raise ValueError(f"budgets.txt: an exception needs a reason: {line}")
            found[words[0], words[1]] = int(words[2])
    return found


def measures(path, text):
    """Yields (kind, name suffix, line number, size, limit)."""
    lines = text.splitlines()
    yield "file", "", 1, len(lines), FILE
    for number, line in enumerate(lines, 1):
        if len(line) > LINE:
            yield "line", "", number, len(line), LINE
    find = cpp_functions if path.suffix in CPP else python_functions
    for name, number, size in find(text) if path.suffix in CPP | {".py"} else []:
        yield "function", f":{name}", number, size, FUNCTION


def check(root):
    try:
        exceptions = read_exceptions(root)
    except ValueError as e:
        return checks.report("budgets", [str(e)], "budgets.txt")
    violations, needed = [], set()
    sources = checks.files(root, FOLDERS, CPP | OTHER) + [root / "CMakeLists.txt"]
    for path in sources:
        name = path.relative_to(root).as_posix()
        for kind, suffix, number, size, limit in measures(path, path.read_text()):
            key = (kind, name + suffix)
            if size > limit and key in exceptions:
                needed.add(key)
            if size > exceptions.get(key, limit):
                unit = "columns" if kind == "line" else "lines"
                violations.append(f"{name}:{number}: {kind}{suffix.replace(':', ' ')} has {size}"
                                  f" {unit} (limit {exceptions.get(key, limit)})")
    for kind, name in sorted(exceptions.keys() - needed):
        violations.append(f"budgets.txt: the exception of {kind} {name} is not needed")
    total = sum(len(p.read_text().splitlines()) for p in checks.files(root, ["src"], CPP))
    return checks.report("budgets", violations, f"{len(sources)} files, src has {total} lines")


def self_test():
    body = "".join(f"  x += {i};\n" for i in range(59))
    short = "namespace a {\nstruct S {\n  S() : x_{1}, y_{2} {}\n  int x_, y_;\n};\n"
    good = {"CMakeLists.txt": "", "src/a.cpp": short + "int f(int x) {\n  return x;\n}\n}\n" * 1}
    long = "namespace a {\n\n// comment {\nint f(int x) {\n" + body + "}\n}\n"
    member = "class A {\n  A() : x{0}, y{1} {\n" + body + "  }\n};\n"
    fixed = {"src/b.cpp": long, "budgets.txt": "function src/b.cpp:f 70 a table\n"}
    bad = {
        "function f has 61 lines": {"src/b.cpp": long},
        "function A has 61 lines": {"src/b.cpp": member},
        "function g has 62 lines": {"tools/b.py": "def g():\n" + "    x = 1\n" * 61},
        "has 501 lines (limit 500)": {"src/b.h": "\n" * 501},
        "101 columns": {"tests/b.cpp": "/" * 101 + "\n"},
        "needs a reason": {"budgets.txt": "file src/a.cpp 600\n"},
        "is not needed": {"budgets.txt": "file src/a.cpp 600 because\n"},
        "has 61 lines (limit 50)": {**fixed, "budgets.txt": "function src/b.cpp:f 50 why\n"},
    }
    return (checks.self_test(__file__, good, bad) or
            checks.self_test(__file__, {**good, **fixed}, {}))


if __name__ == "__main__":
    args = checks.parser(__doc__.splitlines()[0]).parse_args()
    sys.exit(self_test() if args.self_test else check(args.root))
