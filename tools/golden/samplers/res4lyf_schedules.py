"""Golden bong_tangent schedules of RES4LYF: writes schedules_res4lyf.json.

    python res4lyf_schedules.py --sigmas CHECKOUT/sigmas.py --commit HASH --out FOLDER

The two functions are taken out of the file, whose other imports need ComfyUI.
"""

import argparse
import ast
import math
import pathlib

import torch

import files

NAMES = ("get_bong_tangent_sigmas", "bong_tangent_scheduler")
OPTIONS = (dict(), dict(slope_1=0.1, slope_2=0.3), dict(pivot_1=0.4, pivot_2=0.7, middle=0.6),
           dict(start=0.9, end=0.1))


def functions(path):
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", "") in NAMES]
    scope = {"atan": math.atan, "pi": math.pi, "torch": torch}
    exec(compile(tree, str(path), "exec"), scope)  # pylint: disable=exec-used
    return scope


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sigmas", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    schedule = functions(args.sigmas)["bong_tangent_scheduler"]
    cases = []
    for options in OPTIONS:
        for n in (1, 2, 3, 5, 6, 10, 20, 30, 35, 50, 150):
            case = {"schedule": "bong_tangent", "options": options, "n": n}
            try:
                case["sigmas"] = schedule(None, n, **options).tolist()
            except Exception as error:  # pylint: disable=broad-except
                case["error"] = f"{type(error).__name__}: {error}"[:90]
            cases.append(case)
    files.write(args.out / "schedules_res4lyf.json",
                {"reference": {"name": "RES4LYF", "commit": args.commit}}, cases, 9)


if __name__ == "__main__":
    main()
