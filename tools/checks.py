"""What the repository's checks share: files, violations, exit codes and the self-test."""

import argparse
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77  # ctest's SKIP_RETURN_CODE of these checks


def parser(description):
    p = argparse.ArgumentParser(description=description)
    root = pathlib.Path(__file__).resolve().parent.parent
    p.add_argument("--root", type=pathlib.Path, default=root, help="the tree to check")
    p.add_argument("--self-test", action="store_true", help="check the check on a bad tree")
    return p


def files(root, folders, suffixes):
    """Sorted files of `suffixes` under `folders` of `root`, without hidden or generated ones."""
    found = []
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            parts = path.relative_to(root).parts
            hidden = any(p.startswith(".") or p == "__pycache__" for p in parts)
            # files without a suffix are scripts in scripts/ and data elsewhere
            hidden = hidden or (path.suffix == "" and folder != "scripts")
            if path.suffix in suffixes and path.is_file() and not hidden:
                found.append(path)
    return found


def report(subject, violations, checked):
    """Prints the violations and returns the exit code."""
    for v in violations:
        print(v)
    verdict = f"{len(violations)} violations" if violations else "ok"
    print(f"{subject}: {verdict} ({checked})")
    return 1 if violations else 0


def self_test(script, good, bad, options=()):
    """Runs `script` on a good tree, then on the good tree with each bad change.

    good: {path: text}. bad: {expected text in the output: {path: text}}. Returns the exit code.
    """
    failures = []
    for expected, change in [(None, {}), *bad.items()]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**good, **change}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            command = [sys.executable, script, "--root", folder, *options]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        output = run.stdout + run.stderr
        if run.returncode == SKIPPED:
            print(output, end="")
            return SKIPPED
        if expected is None and run.returncode != 0:
            failures.append(f"the good tree fails:\n{output}")
        if expected is not None and (run.returncode != 1 or expected not in output):
            failures.append(f"exit code {run.returncode}, expected 1 and {expected!r}:\n{output}")
    print("\n".join(failures) or f"ok: {len(bad)} violations seen")
    return 1 if failures else 0
