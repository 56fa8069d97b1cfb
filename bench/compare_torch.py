"""Times ebb's training steps against PyTorch's on this machine's CPU, interleaved, and appends the
results as JSON lines to bench/results/cpu.jsonl.

    python bench/compare_torch.py [--threads 2] [--rounds 3] [--cases songunet adm]

Needs build/ebb and a Python with PyTorch. Nothing else should run: OpenMP suffers badly from
company. Both sides take the same network, batch, loss, clipping-free AdamW and number of threads;
ebb's step also clips, and averages the weights. The best PyTorch variant of a case (memory format,
and compiled with --compile) is what ebb is compared with.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

root = pathlib.Path(__file__).resolve().parent.parent


def ebb(case, threads):
    """{dtype: milliseconds} of one run of `ebb bench`."""
    command = [root / "build/ebb", "bench", f"train_step/{case}", "--threads", str(threads),
               "--json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    return {line["dtype"]: line["us"] / 1000 for line in lines}


def torch(case, dtype, threads, flags):
    command = [sys.executable, root / "bench/torch/train_step.py", case, "--threads", str(threads),
               "--dtype", dtype, "--steps", "5", *flags]
    # Large blocks stay with the process: without this PyTorch gives memory back at every step.
    env = dict(os.environ, MALLOC_MMAP_THRESHOLD_="4294967296", MALLOC_TRIM_THRESHOLD_="4294967296")
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    return json.loads(out.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=["songunet", "adm"])
    parser.add_argument("--compile", action="store_true", help="try torch.compile too (minutes)")
    args = parser.parse_args()
    variants = [[], ["--channels-last"]] + ([["--compile"]] if args.compile else [])
    for case in args.cases:
        ours = {"f32": [], "bf16": []}
        theirs = {}
        for _ in range(args.rounds):
            for dtype, ms in ebb(case, args.threads).items():
                ours[dtype].append(ms)
            for dtype in ("f32", "bf16"):
                for flags in variants:
                    result = torch(case, dtype, args.threads, flags)
                    theirs.setdefault((dtype, " ".join(flags)), []).append(result)
        for dtype in ("f32", "bf16"):
            if not ours[dtype]:
                continue
            best = min((statistics.median(r["median_ms"] for r in rs), name)
                       for (d, name), rs in theirs.items() if d == dtype)
            ms = statistics.median(ours[dtype])
            line = {"bench": "train_step", "case": case, "dtype": dtype, "threads": args.threads,
                    "ebb_ms": round(ms, 1), "torch_ms": best[0],
                    "torch_variant": best[1] or "eager",
                    "ratio": round(best[0] / ms, 3),
                    "ebb_all": [round(v, 1) for v in ours[dtype]],
                    "torch_all": {n or "eager": [r["median_ms"] for r in rs]
                                  for (d, n), rs in theirs.items() if d == dtype},
                    "torch_version": theirs[(dtype, "")][0]["engine"],
                    "torch_peak_rss_mb": theirs[(dtype, "")][0]["peak_rss_mb"],
                    "machine": machine(), "date": time.strftime("%Y-%m-%d")}
            text = json.dumps(line)
            print(text)
            with open(root / "bench/results/cpu.jsonl", "a") as out:
                out.write(text + "\n")


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


if __name__ == "__main__":
    main()
