#!/usr/bin/env python3
"""Measures training steps on several GPUs of this machine: ebb on one and on many, by each way to
split, and PyTorch's DistributedDataParallel with torch.compile, interleaved in one run.

    python bench/ranks.py --gpus 2
    python bench/ranks.py --gpus 2 4 --cases dit_xl2 --shards none optimizer --rounds 2

Every rank has the case's batch (weak scaling): with N GPUs a step trains N times the images; with
--share the ranks share it (strong scaling; ebb alone). GPUs of a kind differ in speed by some per
cent, and a step of many is as long as the slowest one's: ebb on one GPU is measured on each of
those that the many have, at the same time.
PyTorch is compiled and captured into a CUDA graph, its fastest way; under DistributedDataParallel,
too, where that works, and else compiled. Needs build/ebb with CUDA, NCCL where GPUs do not reach
each other, and for the other side a Python with PyTorch (--python; --only ebb leaves it out).
Prints a table and appends JSON lines to bench/results/ranks.jsonl; those of a run share a
`machine`. The exit code is 0 only if there is a figure for everything.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ["unet64", "adm64", "dit_xl2"]
ATTENTION = {"dit_xl2": ["--attention", "cudnn_attention", "flash_attention",
                         "efficient_attention", "math"]}
CAPTURED = {"dit_xl2": "blocks_graph"}  # of the others compile_graph


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", required=True, help="numbers of GPUs")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--shards", nargs="+", choices=["none", "optimizer", "weights"],
                        default=["none", "optimizer", "weights"])
    parser.add_argument("--share", type=int, metavar="BATCH",
                        help="a step trains BATCH images on any number of GPUs")
    parser.add_argument("--rounds", type=int, default=2, help="turns of all; medians count")
    parser.add_argument("--only", choices=["ebb", "torch"])
    parser.add_argument("--ebb", default=str(ROOT / "build/ebb"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/ranks.jsonl")
    args = parser.parse_args()
    if args.share and args.only != "ebb":
        parser.error("--share is of ebb alone (--only ebb)")
    if args.share and any(args.share % n for n in args.gpus):
        parser.error(f"--share {args.share} must be a multiple of --gpus {args.gpus}")
    return args


def last_line(command, **environment):
    """The last JSON line of a command; none, with its last words on standard error, if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env={**os.environ, **environment})
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    print(done.stderr[-1500:], file=sys.stderr)
    return None


def ebb_step(args, case, gpus, shard, **environment):
    flags = ["--gpus", gpus, "--shard", shard] if gpus > 1 else []
    if args.share:
        flags += ["--batch", args.share // gpus]
    line = last_line([args.ebb, "bench", f"train_step/{case}", "--json", *flags], **environment)
    return line and {"ms": line["us"] / 1e3, "memory_gb": line["memory_gb"]}


def each_alone(args, case):
    """One GPU, on each of those that the largest number has: the first one's time, and all."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = names.split(",") if names else [str(i) for i in range(max(args.gpus))]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        results = list(pool.map(
            lambda name: ebb_step(args, case, 1, "none", CUDA_VISIBLE_DEVICES=name),
            names[:max(args.gpus)]))
    if None in results:
        return None
    return {**results[0], "each": [r["ms"] for r in results]}


def torch_step(args, case, gpus):
    start = [args.python]
    if gpus > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", gpus]
    script = ROOT / "bench/torch/gpu_step.py"
    captured = CAPTURED.get(case, "compile_graph")
    for mode in [captured] if gpus == 1 else [captured, "compile"]:
        # A capture fails where NCCL's own thread may end the process for an event.
        line = last_line([*start, script, case, "--modes", mode, *ATTENTION.get(case, [])],
                         TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
        if line and "median_ms" in line:
            return {"ms": line["median_ms"], "memory_gb": line.get("peak_gib", 0) * 1.073741824,
                    "mode": mode}
        print(f"{case}, {mode}, {gpus} GPU: {line}", file=sys.stderr)
    return None


def sides(args):
    """What is measured: {(name, number of GPUs): how}."""
    out = {}
    if args.only != "torch":
        out["ebb", 1] = lambda case: each_alone(args, case)
    if args.only != "ebb":
        out["torch", 1] = lambda case: torch_step(args, case, 1)
    for gpus in args.gpus:
        if args.only != "torch":
            for shard in args.shards:
                out[f"ebb, {shard}", gpus] = (
                    lambda case, n=gpus, s=shard: ebb_step(args, case, n, s))
        if args.only != "ebb":
            out["torch, DDP", gpus] = lambda case, n=gpus: torch_step(args, case, n)
    return out


def gpu_name():
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.splitlines()[0]


def main():
    args = arguments()
    whole, gpu = True, gpu_name()
    args.machine = f"{max(args.gpus)} x {gpu.removeprefix('NVIDIA ')}, {time.strftime('%H:%M')}"
    for case in args.cases:
        found = {side: [] for side in sides(args)}
        for _ in range(args.rounds):
            for side, measure in sides(args).items():
                result = measure(case)
                whole = whole and result is not None
                if result:
                    found[side].append(result)
                    print(f"{case} {side[0]}, {side[1]} GPU: {result['ms']:.3f} ms",
                          file=sys.stderr, flush=True)
        report(args, case, gpu, found)
    return 0 if whole else 1


def report(args, case, gpu, found):
    """A row a side: milliseconds, the speed of a GPU in per cent of what the first one, and what
    the slowest one has by itself (with --share N times that is the speed-up), memory."""
    ms = {side: statistics.median(r["ms"] for r in all) for side, all in found.items() if all}
    each = [statistics.median(times) for times in zip(
        *[r["each"] for r in found.get(("ebb", 1), [])])]
    batch = f"{args.share} images together" if args.share else "each GPU with the case's batch"
    print(f"\n{case}, {gpu}, milliseconds a step, {batch}")
    if each:
        print("  each alone: " + ", ".join(f"{t:.3f}" for t in each))
    for (name, gpus), value in ms.items():
        one = ms.get((name.split(",")[0], 1))
        times = gpus if args.share else 1
        scaling = one / value / times if one else float("nan")
        slowest = max(each[:gpus]) / value / times if each and "ebb" in name else float("nan")
        memory = found[name, gpus][-1]["memory_gb"]
        print(f"  {gpus} GPU {name:14} {value:9.3f} ms  {100 * scaling:6.1f} %"
              f"  {100 * slowest:6.1f} %  {memory:6.2f} GB")
        line = {"bench": "ranks", "case": case, "side": name, "gpu": gpu, "gpus": gpus,
                "ms": round(value, 4), "all_ms": [round(r["ms"], 4) for r in found[name, gpus]],
                "scaling": round(scaling, 4), "memory_gb": round(memory, 3),
                **({"of_slowest": round(slowest, 4), "each_alone": [round(t, 4) for t in each]}
                   if each and "ebb" in name else {}),
                **({"share": args.share} if args.share else {}),
                **({"mode": found[name, gpus][-1]["mode"]} if "torch" in name else {}),
                "link": os.environ.get("EBB_COLLECTIVES", "auto"), "machine": args.machine,
                "time": time.strftime("%Y-%m-%d")}
        with args.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
