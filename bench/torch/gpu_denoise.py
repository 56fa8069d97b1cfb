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
import ldm
import modes
from gpu_step import BLOCKS, CASES as TRAINED

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/golden"))
from hashed_weights import projections  # noqa: E402
from hashed_weights import hashed_input  # noqa: E402
from record import fill_hashed, image, nhwc  # noqa: E402

STEPS = 1000
PROJECTIONS = 3
TOKENS = 77
SD15 = dict(in_channels=4, extra_channels=0, model_channels=320, channel_mult=[1, 2, 4, 4],
            num_res_blocks=2, input_depths=[1, 1, 1, 1, 1, 1, 0, 0], middle_blocks=2,
            middle_depth=1, output_depths=[0] * 3 + [1] * 9, num_heads=8, num_head_channels=0,
            context=768, conv_projection=True, vector=0, sizes=0, size_channels=256,
            guidance_channels=0, groups=32)
SDXL = dict(SD15, channel_mult=[1, 2, 4], input_depths=[0, 0, 2, 2, 10, 10], middle_depth=10,
            output_depths=[10] * 3 + [2] * 3 + [0] * 3, num_heads=0, num_head_channels=64,
            context=2048, conv_projection=False, vector=2816, sizes=6)
TINY_XL = dict(SDXL, model_channels=64, input_depths=[0, 0, 1, 1, 1, 1], middle_depth=1,
               output_depths=[1] * 3 + [1] * 3 + [0] * 3, context=32)
# network, config, batch, shape of an image, whether it is a U-Net
CASES = TRAINED | {
    "sd15": (ldm.LdmUNet, SD15, 2, (4, 64, 64), True),
    "sd15_768x512": (ldm.LdmUNet, SD15, 2, (4, 64, 96), True),
    "sdxl": (ldm.LdmUNet, SDXL, 2, (4, 128, 128), True),
    "sdxl_832x1216": (ldm.LdmUNet, SDXL, 2, (4, 152, 104), True),
    "tiny_xl": (ldm.LdmUNet, TINY_XL, 2, (4, 8, 16), True),
}


class Evaluation:
    """A network with inputs."""

    def __init__(self, case, device, batch=0):
        build, config, own_batch, shape, unet = CASES[case]
        layout = torch.channels_last if unet else torch.contiguous_format
        self.net = fill_hashed(build(config)).to(device, torch.bfloat16).eval()
        self.net = self.net.to(memory_format=layout).requires_grad_(False)
        if isinstance(self.net, ldm.LdmUNet):
            self.net.fuse()
        self.count = batch or own_batch
        self.x = image("input.x", (self.count, *shape[1:], shape[0]))
        self.x = self.x.to(device, torch.bfloat16).contiguous(memory_format=layout)
        index = torch.arange(self.count, device=device)
        self.labels = [(37 * index + 11) % STEPS]
        if config.get("num_classes"):
            self.labels.append(index % config["num_classes"])
        if "context" in config:
            shapes = [("text", [TOKENS, config["context"]])]
            if config["vector"]:
                sizes = config["sizes"]
                shapes += [("pooled", [config["vector"] - sizes * config["size_channels"]]),
                           ("size", [sizes])]
            self.labels += [self.hashed(name, shape) for name, shape in shapes]

    def hashed(self, name, shape):
        values = torch.from_numpy(hashed_input(f"input.{name}", [self.count, *shape]))
        # in bf16 the numbers of a size would be others
        return values.to(self.x.device, torch.float32 if name == "size" else torch.bfloat16)

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
            if isinstance(module, (*BLOCKS, *components.BLOCKS, ldm.Res, ldm.Block)):
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
