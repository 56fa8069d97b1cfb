"""What gpu_step.py and gpu_denoise.py share: arguments, captured runs, timing, mode by mode."""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time

import torch


def main(description, cases, work):
    """Measures `work` in the modes asked for, a JSON line each; with --serve the fastest again for
    every line of input, so that another program can measure in between.

    work.bench names it; work.prepare(args, mode) gives what to run and what else the line says."""
    args = arguments(description, cases)
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = True
    best = None  # milliseconds, run, mode
    with attention_order(args.attention):
        for mode in args.modes:
            result = try_mode(args, work, mode)
            if result and (not best or result[0] < best[0]):
                best = result
        if args.serve and best:
            serve(args, work, *best[1:])


def arguments(description, cases):
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=cases)
    parser.add_argument("--modes", nargs="+", default=["compile_graph"])
    parser.add_argument("--attention", nargs="*", default=[],
                        help="backends in order: cudnn_attention flash_attention ...")
    parser.add_argument("--batch", type=int, default=0, help="0: the case's own")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--device", default="cuda", help="cpu: modes without a graph alone")
    parser.add_argument("--dtype", default="bf16", choices=["f32", "bf16"],
                        help="of evaluations of networks")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: PyTorch's choice")
    return parser.parse_args()


def captured(run, before=lambda: None, times=3, error_mode="global"):
    """Replays a CUDA graph of `run`, which was run so many times and then `before`."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            run()
    torch.cuda.current_stream().wait_stream(side)
    before()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=error_mode):
        out = run()

    def replay():
        graph.replay()
        return out

    return replay


def attention_order(names):
    """A context in which scaled_dot_product_attention prefers these backends, in this order."""
    if not names:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel([getattr(SDPBackend, n.upper()) for n in names], set_priority=True)


def milliseconds(run, steps, device):
    if device == "cpu":
        return [run_on_host(run) for _ in range(steps)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def run_on_host(run):
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def measure(args, work, run, mode, extra):
    times = milliseconds(run, args.steps, args.device)
    line = {"bench": work.bench, "engine": f"torch {torch.__version__}", "case": args.case,
            "mode": mode, "median_ms": statistics.median(times), "min_ms": min(times),
            "max_ms": max(times), "steps": args.steps, **extra}
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}),
              flush=True)
    return line["median_ms"]


def try_mode(args, work, mode):
    """(milliseconds, run, mode), or None if the mode fails here."""
    start = time.perf_counter()
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        run, extra = work.prepare(args, mode)
        extra["prepare_s"] = time.perf_counter() - start
        if args.device == "cuda":
            extra["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
            extra["reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
        return measure(args, work, run, mode, extra), run, mode
    except Exception as error:  # a mode that this PyTorch cannot do is not the others' end
        print(json.dumps({"case": args.case, "mode": mode, "error": str(error)[:300]}), flush=True)
        return None


def serve(args, work, run, mode):
    print(json.dumps({"ready": mode}), flush=True)
    for _ in sys.stdin:
        run()
        measure(args, work, run, mode, {})
