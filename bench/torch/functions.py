"""ebb's functions for PyTorch against the fastest of PyTorch's own ways and other libraries', on a
GPU, in bf16.

    PYTHONPATH=python python bench/torch/functions.py [--only WORD ...] [--host] [--json FILE]

Every row is one function at a size of a known model, forward and (for those that train) backward.
First the results are compared with those in f32; then both sides are timed by turns, as CUDA graphs
replayed over copies of their data of at least 256 MB, so that caches are cold; medians. Of the
others (eager, compiled, compiled with autotuning for products, fused functions of torch, backends
of attention, liger-kernel and quack where they are installed) the fastest counts. --host measures
the time of the call itself on one row instead. Needs EBB_KERNELS_LIBRARY or an installed
ebb_kernels. One JSON line a row and direction; a table last.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

import torch
import torch._functorch.config

import ebb_kernels as ek
from function_rows import ROWS
from gpu_ops import IN_TURN, bytes_of

RUNTIME_ERRORS = (RuntimeError, ImportError, AttributeError, TypeError, ValueError)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="rows with one of these words")
    parser.add_argument("--host", action="store_true", help="the time of a call on the host")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both sides")
    parser.add_argument("--directions", nargs="+", default=["forward", "backward"])
    parser.add_argument("--seconds", type=float, default=1e9, help="start no row after this time")
    parser.add_argument("--json", help="file that lines are added to")
    parser.add_argument("--compile", type=int, default=12, metavar="N",
                        help="processes that compile torch's sides beforehand")
    parser.add_argument("--share", help=argparse.SUPPRESS)  # of those processes: "i/n"
    return parser.parse_args()


# ---- one side of a row: a function, its data, and a graph of both -----------------------------

def flat(values):
    values = values if isinstance(values, (tuple, list)) else (values,)
    return [v for v in values if torch.is_tensor(v)]


def with_results(row, function):
    """Operands, results with a graph, and their gradients."""
    given = row.make()
    for i in row.trained:
        given[i] = given[i].detach().requires_grad_()
    out = [y for y in flat(function(*given)) if y.requires_grad]
    return given, out, [torch.randn_like(y) for y in out]


class Side:
    """A way to compute a row, captured over copies of its data. The median time of one run."""

    def __init__(self, row, name, function, backward):
        self.name, self.backward = name, backward
        self.function, self.trained = function, row.trained
        first = self.data(row)
        size = bytes_of(first[0]) + bytes_of(flat(self.run(first)))
        copies = max(1, min(16, IN_TURN // max(1, size)))
        self.sets = [first] + [self.data(row) for _ in range(copies - 1)]
        for data in self.sets:
            self.run(data)
        torch.cuda.synchronize()
        self.repeats = 1
        self.graph = self.captured()
        self.repeats = max(1, min(64, int(2000 / self.microseconds() / copies)))
        if self.repeats > 1:
            self.graph = self.captured()

    def data(self, row):
        return with_results(row, self.function) if self.backward else (row.make(),)

    def run(self, data):
        if not self.backward:
            with torch.no_grad():
                return self.function(*data[0])
        given, out, seeds = data
        wanted = [given[i] for i in self.trained]
        return torch.autograd.grad(out, wanted, seeds, retain_graph=True)

    def captured(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            for _ in range(self.repeats):
                self.kept = [self.run(data) for data in self.sets]  # memory of their own
        graph.replay()
        return graph

    def microseconds(self, replays=7):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
        marks[0].record()
        for mark in marks[1:]:
            self.graph.replay()
            mark.record()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
        return 1e3 * statistics.median(times) / self.repeats / len(self.sets)


# ---- rows -------------------------------------------------------------------------------------

def ways_of(row):
    """The others' ways by name."""
    ways = dict(row.others)
    if row.torch is not None:
        ways = {"eager": row.torch, "compile": compiled(row.torch)} | ways
        if row.autotuned:
            ways["autotune"] = compiled(row.torch, mode="max-autotune-no-cudagraphs")
    return ways


def compiled(function, **options):
    return torch.compile(function, dynamic=False, fullgraph=True, **options)


def error(got, want):
    got, want = ([y.double() for y in flat(v)] for v in (got, want))
    return max((a - b).norm().item() / max(b.norm().item(), 1e-30) for a, b in zip(got, want))


def errors(row):
    """Of ours and of torch's in bf16 against torch's in f32: forward, and of the gradients."""
    torch.manual_seed(0)
    given = row.make()

    def results(function, cast):
        inputs = [cast(x) if torch.is_tensor(x) else x for x in given]
        for i in row.trained:
            inputs[i] = inputs[i].detach().requires_grad_()
        out = flat(function(*inputs))
        found = [y.detach() for y in out]
        if row.trained:
            generator = torch.Generator("cuda").manual_seed(1)
            out = [y for y in out if y.requires_grad]
            seeds = [torch.randn(y.shape, device="cuda", generator=generator).bfloat16().to(y.dtype)
                     for y in out]
            grads = torch.autograd.grad(out, [inputs[i] for i in row.trained], seeds)
            return found, grads
        return found, None

    baseline = row.torch or next(iter(row.others.values()))
    wide = results(row.exact or baseline, lambda x: x.float() if x.is_floating_point() else x)
    ours, torchs = results(row.ebb, lambda x: x), results(baseline, lambda x: x)
    out = {}
    for name, index in (("forward", 0), ("backward", 1)):
        if wide[index] is not None:
            out[name] = error(ours[index], wide[index]), error(torchs[index], wide[index])
    return out


def measured(row, backward, rounds):
    """Times in microseconds by side, ours first, by turns."""
    sides = []
    for name, function in {"ebb": row.ebb, **ways_of(row)}.items():
        try:
            sides.append(Side(row, name, function, backward))
        except RUNTIME_ERRORS as problem:  # a way that does not serve the shape or the direction
            if name == "ebb":
                raise
            print(f"  {row.name}: {name}: {str(problem).splitlines()[0][:120]}", file=sys.stderr)
    times = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            times[side.name].append(side.microseconds())
    return {name: statistics.median(t) for name, t in times.items()}


def bandwidth():
    """GB/s of torch's copy of 0.5 GB, bytes read and written."""
    a = torch.randn(1 << 28, device="cuda", dtype=torch.bfloat16)
    b = torch.empty_like(a)
    times = []
    for _ in range(12):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        marks[0].record()
        b.copy_(a)
        marks[1].record()
        torch.cuda.synchronize()
        times.append(marks[0].elapsed_time(marks[1]))
    return 2 * bytes_of([a]) / statistics.median(times) / 1e6


def line_of(row, direction, times, found, copy):
    ours = times.pop("ebb")
    best = min(times, key=times.get) if times else None
    moved = row.bytes(direction) if row.bytes else None
    line = {"bench": "function", "case": row.name, "direction": direction, "dtype": "bf16",
            "ebb_us": round(ours, 2), "ways_us": {k: round(v, 2) for k, v in times.items()},
            "best": best, "ratio": round(times[best] / ours, 3) if best else None,
            "error": float(f"{found[direction][0]:.2e}"),
            "torch_error": float(f"{found[direction][1]:.2e}")}
    if moved:
        line["percent_of_copy"] = round(100 * moved / ours / 1e3 / copy, 1)
    return line


def environment():
    return {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
            "ebb_kernels": ek.__version__, "date": time.strftime("%Y-%m-%d")}


def device_times(args, rows):
    copy = bandwidth()
    start, lines = time.monotonic(), []
    for row in rows:
        if time.monotonic() - start > args.seconds:
            print(f"left out for want of time: {row.name}", file=sys.stderr)
            continue
        try:
            found = errors(row)
        except RUNTIME_ERRORS as problem:
            print(f"FAILED {row.name}: {str(problem)[:300]}", file=sys.stderr)
            continue
        for direction, (ours, torchs) in found.items():
            if direction not in args.directions:
                continue
            if not ours <= max(2 * torchs, 1e-2):
                print(f"WRONG {row.name} {direction}: error {ours:.2e}, torch's {torchs:.2e}",
                      file=sys.stderr)
                continue
            try:
                times = measured(row, direction == "backward", args.rounds)
            except RUNTIME_ERRORS as problem:
                print(f"FAILED {row.name} {direction}: {str(problem)[:300]}", file=sys.stderr)
                continue
            lines.append(line_of(row, direction, times, found, copy) | {"copy_gb_s": round(copy)})
            keep(args, lines[-1])
        torch.cuda.empty_cache()
    table(lines)


def keep(args, line):
    line = line | environment()
    print(json.dumps(line), file=sys.stderr, flush=True)
    if args.json:
        with open(args.json, "a") as file:
            file.write(json.dumps(line) + "\n")


def table(lines):
    print(f"\n{'row':46} {'dir':8} {'ebb us':>9} {'best us':>9} {'ratio':>6} {'copy':>5}  best")
    for line in lines:
        best = line["ways_us"].get(line["best"], math.nan)
        print(f"{line['case'][:46]:46} {line['direction']:8} {line['ebb_us']:9.2f} {best:9.2f} "
              f"{line['ratio'] or math.nan:6.2f} {line.get('percent_of_copy', math.nan):4.0f}%  "
              f"{line['best']}")
    for direction in ("forward", "backward"):
        ratios = [x["ratio"] for x in lines if x["direction"] == direction and x["ratio"]]
        if ratios:
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            print(f"{direction}: geometric mean {mean:.3f}, least {min(ratios):.3f}, "
                  f"{len(ratios)} rows")


# ---- host time --------------------------------------------------------------------------------

def call_time(function, inputs, calls=1000):
    """Microseconds of a call on the host, median of several series without waiting."""
    with torch.no_grad():
        for _ in range(100):
            function(*inputs)
        times = []
        for _ in range(7):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                function(*inputs)
            times.append(1e6 * (time.perf_counter() - start) / calls)
        torch.cuda.synchronize()
    return statistics.median(times)


def host_times(args, rows):
    x, w = (torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((1, 4096), (4096,)))
    floor = {"F.rms_norm": call_time(lambda: torch.nn.functional.rms_norm(x, (4096,), w, 1e-6), ()),
             "x + x": call_time(lambda: x + x, ())}
    seen = set()
    print(f"\n{'function':28} {'host us':>8}   " +
          ", ".join(f"{k} {v:.2f}" for k, v in floor.items()))
    for row in rows:
        if row.function in seen or row.one_row is None:
            continue
        seen.add(row.function)
        took = call_time(row.ebb, row.one_row())
        print(f"{row.function:28} {took:8.2f}")
        keep(args, {"bench": "function_host", "case": row.function, "ebb_us": round(took, 2),
                    "floor_us": {k: round(v, 2) for k, v in floor.items()}})
    first_calls(args)


def first_calls(args):
    """Milliseconds of the first call of a new formula, row length and number of rows."""
    x = torch.randn(64, 1024, device="cuda", dtype=torch.bfloat16)

    def first(function):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    formulas = [first(lambda c=c: ek.map(f"x * sigmoid({1.5 + c / 7} * x) + {c}", x=x))
                for c in range(7)]
    shapes = [first(lambda n=n: ek.rms_norm(torch.randn(3, n, device="cuda"))) for n in
              range(1024, 1024 + 7 * 128, 128)]
    rows = [first(lambda n=n: ek.rms_norm(torch.randn(n, 1024, device="cuda")))
            for n in range(64, 71)]
    line = {"bench": "function_first_call", "formula_ms": round(statistics.median(formulas), 2),
            "shape_ms": round(statistics.median(shapes), 2),
            "rows_ms": round(statistics.median(rows), 2)}
    print(f"first call of a formula {line['formula_ms']} ms, of a row length {line['shape_ms']} "
          f"ms, of another number of rows {line['rows_ms']} ms")
    keep(args, line)


# ---- compiling torch's sides beforehand, side by side ------------------------------------------

def compile_all(args, rows):
    """Fills torch's caches on disk in several processes, so that measuring waits for none."""
    start, count = time.monotonic(), min(args.compile, len(rows))
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:]]
    running = [subprocess.Popen([*command, "--share", f"{i}/{count}"], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL) for i in range(count)]
    for process in running:
        process.wait()
    print(f"compiled torch's sides in {time.monotonic() - start:.0f} s", file=sys.stderr)


def compile_share(rows, share):
    index, count = map(int, share.split("/"))
    for row in rows[index::count]:
        for name, function in ways_of(row).items():
            if name not in ("compile", "autotune"):
                continue
            try:
                with torch.no_grad():
                    function(*row.make())
                if row.trained:
                    _, out, seeds = with_results(row, function)
                    torch.autograd.backward(out, seeds)
            except RUNTIME_ERRORS:
                continue  # measuring says so
            torch.cuda.empty_cache()


def main():
    args = arguments()
    torch.backends.cudnn.benchmark = True
    torch._dynamo.config.cache_size_limit = 256
    torch._functorch.config.donated_buffer = False  # gradients are asked for more than once
    rows = [r for r in ROWS if any(word in r.name for word in args.only)]
    if args.share:
        return compile_share(rows, args.share)
    if args.host:
        return host_times(args, rows)
    if args.compile:
        compile_all(args, rows)
    # Captures want a stream of their own, and gradients run on the stream of their forward pass.
    with torch.cuda.stream(torch.cuda.Stream()):
        device_times(args, rows)


if __name__ == "__main__":
    main()
