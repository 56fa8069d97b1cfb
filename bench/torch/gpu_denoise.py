"""PyTorch's evaluations of networks on a GPU, as sampling makes them: the other side of
bench/gpu --only sample, and a worker for it.

    python bench/torch/gpu_denoise.py adm64 --modes eager compile_graph
    python bench/torch/gpu_denoise.py decode/vae_1024 --modes compile_graph

One evaluation without gradients or guidance, a class for each image; weights and activations bf16,
U-Nets in channels_last. Weights and inputs are hashed (tools/golden/hashed_weights.py) as in `ebb
bench denoise/...`, so that the outputs can be compared: "check" is the l2 norm and the first
projections. Modes:
  eager          as written
  eager_graph    that, captured as a CUDA graph
  compile        torch.compile of the network
  compile_graph  that, captured as a CUDA graph
  autotune       torch.compile(mode="max-autotune-no-cudagraphs"), captured as a CUDA graph
  blocks_graph   each block compiled by itself (fast to compile), captured as a CUDA graph
  blocks_autotune  that with mode="max-autotune-no-cudagraphs"
One JSON line a mode. With --serve it then measures the fastest mode again for every line of input.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch

import components
from gpu_step import BLOCKS, CASES, attention_order, milliseconds

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/golden"))
from hashed_weights import projections  # noqa: E402
from record import fill_hashed, image, nhwc  # noqa: E402

STEPS = 1000
PROJECTIONS = 3


class Evaluation:
    """A network with inputs."""

    def __init__(self, case, device, batch=0):
        build, config, own_batch, shape, unet = CASES[case]
        layout = torch.channels_last if unet else torch.contiguous_format
        self.net = fill_hashed(build(config)).to(device, torch.bfloat16).eval()
        self.net = self.net.to(memory_format=layout).requires_grad_(False)
        self.count = batch or own_batch
        self.x = image("input.x", (self.count, *shape[1:], shape[0]))
        self.x = self.x.to(device, torch.bfloat16).contiguous(memory_format=layout)
        index = torch.arange(self.count, device=device)
        self.labels = [(37 * index + 11) % STEPS]
        if config.get("num_classes"):
            self.labels.append(index % config["num_classes"])

    def run(self):
        with torch.no_grad():
            return self.net(self.x, *self.labels)


def captured(run):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()

    def replay():
        graph.replay()
        return out

    return replay


def make_run(evaluation, mode):
    if mode == "eager":
        return evaluation.run
    if mode == "eager_graph":
        return captured(evaluation.run)
    how = {"mode": "max-autotune-no-cudagraphs"} if "autotune" in mode else {}
    if mode.startswith("blocks_"):
        for module in evaluation.net.modules():
            if isinstance(module, BLOCKS + components.BLOCKS):
                module.compile(**how)
        return captured(evaluation.run)
    compiled = torch.compile(evaluation.run, **how)
    return compiled if mode == "compile" else captured(compiled)


def measure(args, run, mode, extra):
    times = milliseconds(run, args.steps, args.device)
    kind, _, case = args.case.rpartition("/")
    line = {"bench": kind or "denoise", "engine": f"torch {torch.__version__}", "case": case,
            "mode": mode, "median_ms": statistics.median(times), "min_ms": min(times),
            "max_ms": max(times), "steps": args.steps, **extra}
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}),
          flush=True)
    return line["median_ms"]


def try_mode(args, mode):
    """(milliseconds, run), or None if the mode fails here."""
    start = time.perf_counter()
    try:
        of_components = args.case in components.CASES
        evaluation = (components.Evaluation if of_components else Evaluation)(
            args.case, args.device, args.batch)
        if args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        run = make_run(evaluation, mode)
        out = nhwc(run()).double().reshape(-1).cpu().numpy()
        check = [float((out ** 2).sum() ** 0.5), *projections("output", out)[:PROJECTIONS]]
        for _ in range(args.warmup):
            run()
        extra = {"batch": evaluation.count, "check": check,
                 "prepare_s": time.perf_counter() - start}
        if args.device == "cuda":
            extra["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        return measure(args, run, mode, extra), run
    except Exception as error:  # a mode that this PyTorch cannot do is not the others' end
        print(json.dumps({"case": args.case, "mode": mode, "error": str(error)[:300]}), flush=True)
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=[*CASES, *components.CASES])
    parser.add_argument("--modes", nargs="+", default=["compile_graph"])
    parser.add_argument("--attention", nargs="*", default=[],
                        help="backends in order: cudnn_attention flash_attention ...")
    parser.add_argument("--batch", type=int, default=0, help="0: the case's own")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--device", default="cuda", help="cpu tries the program out")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    best, best_mode = None, ""
    with attention_order(args.attention):
        for mode in args.modes:
            result = try_mode(args, mode)
            if result and (not best or result[0] < best[0]):
                best, best_mode = result, mode
        if args.serve and best:
            print(json.dumps({"ready": best_mode}), flush=True)
            for _ in sys.stdin:
                best[1]()
                measure(args, best[1], best_mode, {})


if __name__ == "__main__":
    main()
