#!/usr/bin/env python3
"""Where the time of a training step goes on one GPU and on several: traces ebb's bench with CUPTI.

    python bench/timeline.py unet64 --gpus 1 4

For each number of GPUs, means over the last steps and over ranks, in milliseconds:
  step      from the begin of a step to that of the next (tracing lengthens it a little)
  network   some kernel of the network, the loss or the optimiser runs
  exchange  none does, but a kernel or a copy of the exchange between GPUs
  nothing   neither: waits for other ranks, gaps between kernels
and beside it the time and the bytes of the copies, the time of the exchange's kernels, and the
longest gaps of the network. Needs a program with CUDA, g++ and CUDA's headers with CUPTI (--cuda),
or --library, compiled elsewhere.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXCHANGE = ("sum_of_ranks", "move_bytes")  # kernels of src/backend/cuda/peers/kernels.cu
STEPS, GAPS = 20, 12

Event = collections.namedtuple("Event", "kind start end launch bytes name")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", help="a case of `ebb bench train_step/...`")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1])
    parser.add_argument("--shard", default="optimizer")
    parser.add_argument("--ebb", default=ROOT / "build/ebb")
    parser.add_argument("--cuda", type=pathlib.Path, default="/usr/local/cuda")
    parser.add_argument("--library", type=pathlib.Path)
    return parser.parse_args()


def compiled(folder, cuda):
    library = folder / "timeline.so"
    subprocess.run(["g++", "-std=c++20", "-O2", "-shared", "-fPIC", f"-I{cuda}/include",
                    f"-I{cuda}/extras/CUPTI/include", ROOT / "bench/timeline.cpp", "-o", library,
                    f"-L{cuda}/lib", f"-L{cuda}/lib64", f"-L{cuda}/extras/CUPTI/lib64", "-lcupti"],
                   check=True)
    return library


def events(path):
    out = []
    for line in path.open(encoding="utf-8"):
        kind, start, end, launch, size, name = line.rstrip("\n").split("\t")
        out.append(Event(kind, int(start), int(end), int(launch), int(size), name))
    return sorted(out, key=lambda event: event.start)


def last_steps(all_events):
    """The events of each of the last steps: nodes of a graph have the number of its launch."""
    launches = collections.defaultdict(list)
    for event in all_events:
        launches[event.launch].append(event)
    largest = max(map(len, launches.values()), default=0)
    steps = [nodes for nodes in launches.values() if largest > 50 and len(nodes) == largest]
    return sorted(steps, key=lambda nodes: nodes[0].start)[-STEPS - 1:]


def union(spans):
    """Spans [(start, end)], which may overlap, as ones that do not."""
    out = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def length(spans):
    return sum(end - start for start, end in spans)


def is_exchange(event):
    return event.kind != "kernel" or any(name in event.name for name in EXCHANGE)


def gaps_of(network, end):
    """{the kernel behind a gap, and which of its name in the step: [ns of the gap, begin]}."""
    out, seen, last = {}, collections.Counter(), network[0].end
    for event in network:
        seen[event.name] += 1
        if event.start > last:
            out[event.name, seen[event.name]] = (event.start - last, last - network[0].start)
        last = max(last, event.end)
    if end > last:
        out["(the next step)", 1] = (end - last, last - network[0].start)
    return out


def figures(step, end):
    """What a step that ends at `end` took, {figure: ns or bytes}, and its gaps."""
    network = [event for event in step if not is_exchange(event)]
    exchange = [event for event in step if is_exchange(event)]
    copies = [event for event in exchange if event.kind == "copy"]
    busy = length(union((e.start, e.end) for e in network))
    any_busy = length(union((e.start, min(e.end, end)) for e in step))
    whole = end - step[0].start
    values = {"step": whole, "network": busy, "exchange": any_busy - busy,
              "nothing": whole - any_busy, "copies": sum(e.end - e.start for e in copies),
              "bytes": sum(e.bytes for e in copies),
              "exchange's kernels": sum(e.end - e.start for e in exchange if e.kind == "kernel")}
    return values, gaps_of(network, end)


def measure(args, gpus, library, folder):
    flags = ["--gpus", str(gpus), "--shard", args.shard] if gpus > 1 else []
    where = folder / f"{args.case}-{gpus}"
    subprocess.run([args.ebb, "bench", f"train_step/{args.case}", "--json", *flags], check=True,
                   stdout=subprocess.DEVNULL,
                   env={**os.environ, "CUDA_INJECTION64_PATH": str(library),
                        "TIMELINE_OUT": str(where)})
    sums, gaps, begins, count = (collections.Counter(), collections.Counter(),
                                 collections.Counter(), 0)
    for path in folder.glob(where.name + ".*"):
        steps = last_steps(events(path))
        for step, following in zip(steps, steps[1:]):
            values, between = figures(step, following[0].start)
            sums.update(values)
            gaps.update({where: gap for where, (gap, _) in between.items()})
            begins.update({where: begin for where, (_, begin) in between.items()})
            count += 1
    if not count:
        sys.exit(f"timeline: {args.case}, {gpus} GPU: no step was traced")
    mean = {key: value / count for key, value in sums.items()}
    return mean, [(gap / count, begins[where] / count, where)
                  for where, gap in gaps.most_common(GAPS)]


def short(name):
    """The function of a mangled name, without its namespaces."""
    plain = subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip()
    plain = re.sub(r"<.*|\(anonymous namespace\)::", "", plain)
    return plain.split("(")[0].split("::")[-1].removeprefix("void ") or name


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        library = args.library or compiled(folder, args.cuda)
        rows = {gpus: measure(args, gpus, library.resolve(), folder) for gpus in args.gpus}
    times = ["step", "network", "exchange", "nothing", "copies", "exchange's kernels"]
    print(f"{args.case}, ms a step\n| GPUs | " + " | ".join(times) + " | copied, MB |")
    print("|---" * (len(times) + 2) + "|")
    for gpus, (mean, _) in rows.items():
        print(f"| {gpus} | " + " | ".join(f"{mean[name] / 1e6:.3f}" for name in times) +
              f" | {mean['bytes'] / 1e6:.0f} |")
    for gpus, (_, gaps) in rows.items():
        print(f"\n{gpus} GPU: longest gaps of the network, us; when in the step, ms; before what")
        for gap, begin, (name, which) in gaps:
            print(f"{gap / 1e3:9.1f} {begin / 1e6:9.2f}  {short(name)} no. {which}")


if __name__ == "__main__":
    sys.exit(main())
