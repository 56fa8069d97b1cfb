"""Times an evaluation of Stable Diffusion 1.5's U-Net on this machine's CPU, both halves of
guidance at 512x512: ebb, PyTorch and, where its program is given, stable-diffusion.cpp,
interleaved. Appends JSON lines to bench/results/cpu.jsonl.

    python bench/compare_images.py [--threads 2] [--rounds 3] [--dtypes f32 bf16]
    python bench/compare_images.py --sd .../sd-cli --model sd15.safetensors

Needs build/ebb and a Python with PyTorch. Nothing else should run. ebb and PyTorch take the same
hashed weights and inputs, and their outputs are compared first; the fastest of PyTorch's modes
counts. stable-diffusion.cpp takes --model, a whole checkpoint (random weights do), and its figure
is that of a step of sampling as it prints it; with --model ebb makes the same picture too, for
the peaks of memory of whole programs. bench/random_checkpoint.py writes such a file.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from compare_torch import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODES = ["eager", "compile"]
# PyTorch gives memory back at every step without these.
HEAP = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}


def child(command, **environment):
    """What a program printed, and its peak of resident memory in megabytes."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=errors,
                                   env=dict(os.environ, **environment))
        _, status, usage = os.wait4(process.pid, 0)
        out.seek(0)
        errors.seek(0)
        text = out.read() + errors.read()
        if status:
            sys.exit(f"{command[0]} failed ({status}): {text[-2000:]}")
        return text, usage.ru_maxrss / 1024


def ebb(dtype, threads):
    text, peak = child([ROOT / "build/ebb", "bench", "denoise/sd15", "--device", "cpu", "--json",
                        "--dtype", dtype, "--threads", threads])
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    line = next(ln for ln in lines if ln["example"] == "sd15" and ln["dtype"] == dtype)
    return {"ms": line["us"] / 1000, "peak_mb": peak, "check": line.get("check")}


def torch(mode, dtype, threads):
    text, peak = child([sys.executable, ROOT / "bench/torch/gpu_denoise.py", "sd15", "--device",
                        "cpu", "--modes", mode, "--dtype", dtype, "--threads", threads, "--steps",
                        "3", "--warmup", "1"], **HEAP)
    line = next(json.loads(ln) for ln in text.splitlines() if ln.startswith("{"))
    return {"ms": line["median_ms"], "peak_mb": peak, "check": line["check"],
            "engine": line["engine"]}


def sd_cpp(args, dtype):
    """Two steps of sampling, decoded; its own clock around the steps."""
    steps = 2
    with tempfile.TemporaryDirectory() as folder:
        text, peak = child([args.sd, "-m", args.model, "-p", "a lighthouse", "-n", "fog", "-W",
                            512, "-H", 512, "--steps", steps, "--cfg-scale", 7, "-t",
                            args.threads, "--type", dtype, "--sampling-method", "euler", "-o",
                            pathlib.Path(folder) / "out.png", "-v"])
    seconds = re.search(r"sampling completed, taking ([0-9.]+)s", text)
    return {"ms": 1e3 * float(seconds[1]) / steps, "peak_mb": peak}


def ebb_picture(args, dtype):
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        _, peak = child([ROOT / "build/ebb", "generate", "--model", args.model, "--prompt",
                         "a lighthouse", "--negative", "fog", "--size", 512, "--steps", 2,
                         "--device", "cpu", "--sampler", "euler", "--threads", args.threads,
                         "--dtype", dtype, "--out", pathlib.Path(folder) / "out.png"])
        return {"s": time.perf_counter() - start, "peak_mb": peak}


def compared(ours, theirs, dtype):
    """Whether the norms and projections of the outputs agree."""
    limit = 1e-3 if dtype == "f32" else 3e-2
    far = max(abs(a - b) for a, b in zip(ours, theirs)) / theirs[0]
    if far > limit:
        sys.exit(f"{dtype}: the outputs differ by {far:.2g} of their norm (limit {limit})")
    return far


def median(runs, key="ms"):
    return round(statistics.median(r[key] for r in runs), 1)


def measure(args, dtype):
    runs = {}

    def add(name, result):
        print(f"{dtype} {name}: {result}", file=sys.stderr, flush=True)
        runs.setdefault(name, []).append(result)

    for _ in range(args.rounds):
        add("ebb", ebb(dtype, args.threads))
        for mode in args.modes:
            add(mode, torch(mode, dtype, args.threads))
        if args.sd:
            for kind in ["f32", "f16"] if dtype == "f32" else [dtype]:
                add(f"sd.cpp {kind}", sd_cpp(args, kind))
    if args.model:
        add("ebb picture", ebb_picture(args, dtype))
    ours = runs["ebb"]
    best = min(args.modes, key=lambda m: median(runs[m]))
    line = {"bench": "denoise", "case": "sd15_512", "dtype": dtype, "threads": args.threads,
            "ebb_ms": median(ours), "torch_ms": median(runs[best]), "torch_mode": best,
            "ratio": round(median(runs[best]) / median(ours), 3),
            "difference": compared(ours[0]["check"], runs[best][0]["check"], dtype),
            "torch_version": runs[best][0]["engine"]}
    rivals = [name for name in runs if name.startswith("sd.cpp")]
    if rivals:
        rival = min(rivals, key=lambda name: median(runs[name]))
        line |= {"sdcpp_ms": median(runs[rival]), "sdcpp_type": rival.split()[1],
                 "sdcpp_ratio": round(median(runs[rival]) / median(ours), 3)}
    line |= {"peak_mb": {name: median(r, "peak_mb") for name, r in runs.items()},
             "all": {name: [round(r["ms"], 1) for r in rs] for name, rs in runs.items()
                     if "ms" in rs[0]},
             "machine": machine(), "date": time.strftime("%Y-%m-%d")}
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"], choices=["f32", "bf16"])
    parser.add_argument("--modes", nargs="+", default=MODES, help="PyTorch's")
    parser.add_argument("--sd", type=pathlib.Path, help="the program of stable-diffusion.cpp")
    parser.add_argument("--model", type=pathlib.Path, help="a checkpoint for --sd and for memory")
    args = parser.parse_args()
    if args.sd and not args.model:
        parser.error("--sd needs --model")
    for dtype in args.dtypes:
        text = json.dumps(measure(args, dtype))
        print(text)
        with open(ROOT / "bench/results/cpu.jsonl", "a") as out:
            out.write(text + "\n")


if __name__ == "__main__":
    main()
