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

import sys
from pathlib import Path

import torch

import components
import modes
from gpu_step import BLOCKS, CASES

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


class Evaluations:
    """Evaluations as modes.main() measures them."""

    bench = "denoise"

    def prepare(self, args, mode):
        """(what to measure, facts of it)."""
        of_component = args.case in components.CASES
        evaluation = (components.Evaluation(args.case, args.device) if of_component
                      else Evaluation(args.case, args.device, args.batch))
        run = make_run(evaluation, mode)
        out = nhwc(run()).double().reshape(-1).cpu().numpy()
        check = [float((out ** 2).sum() ** 0.5), *projections("output", out)[:PROJECTIONS]]
        for _ in range(args.warmup):
            run()
        return run, {"batch": evaluation.count, "check": check}


if __name__ == "__main__":
    modes.main(__doc__, [*CASES, *components.CASES], Evaluations())
