"""Writes the golden files: python generate.py [--edm P] [--guided-diffusion P] --out tests/golden.

Without a reference's path, only the cases that do not need it are written.
"""

import argparse
import json
import platform
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cases  # noqa: E402
import references  # noqa: E402
from ddpm_golden import ddpm_golden  # noqa: E402
from edm_golden import edm_golden  # noqa: E402
from record import record_case  # noqa: E402

NEEDS = {"adm": "guided_diffusion", "songunet": "edm", "dhariwal": "edm"}
SOURCES = {"edm": "training/networks.py", "guided_diffusion": "guided_diffusion/unet.py"}


def versions(paths):
    out = {"python": platform.python_version(), "torch": torch.__version__,
           "numpy": np.__version__, "rule": "tools/golden/hashed_weights.py"}
    for key, path in paths.items():
        if path:
            out[f"{key} {SOURCES[key]} sha256"] = references.file_hash(Path(path) / SOURCES[key])
    return out


def write(path, value):
    """JSON with one tensor a line: small and still readable in a diff."""
    def text(v, depth):
        flat = json.dumps(v)
        if not isinstance(v, dict) or depth > 3 or len(flat) < 90:
            return flat
        pad = "\n" + " " * (depth + 1)
        rows = [f"{pad}{json.dumps(k)}: {text(x, depth + 1)}" for k, x in v.items()]
        return "{" + ",".join(rows) + "\n" + " " * depth + "}"

    path.write_text(text(value, 0) + "\n")
    print(f"{path.name}: {path.stat().st_size // 1024} KB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edm", help="checkout of NVlabs/edm")
    parser.add_argument("--guided-diffusion", help="checkout of openai/guided-diffusion")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", help="write only the cases whose name contains this")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    paths = {"edm": args.edm, "guided_diffusion": args.guided_diffusion}
    args.out.mkdir(parents=True, exist_ok=True)
    for case in cases.all_cases(paths):
        need = NEEDS.get(case["model"])
        if (need and not paths[need]) or (args.only and args.only not in case["name"]):
            continue
        golden = record_case(case, case["build"](), case["call"], references.exact_mode)
        used = {need: paths[need]} if need else {}
        write(args.out / f"{case['name']}.json", {"generator": versions(used), **golden})
    if all(paths.values()) and (not args.only or args.only in "diffusion"):
        golden = {"edm": edm_golden(args.edm), "ddpm": ddpm_golden(paths)}
        write(args.out / "diffusion.json", {"generator": versions(paths), **golden})


if __name__ == "__main__":
    main()
