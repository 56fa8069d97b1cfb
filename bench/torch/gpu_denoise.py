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
Whole pictures (generate/...): each network compiled, and the run, from tokens to pixels with 20
steps of DPM++ 2M and guidance, captured as one CUDA graph (compile_graph); nothing is compared, as
the noise is another.
One JSON line a mode. With --serve it then measures the fastest mode again for every line of input.
"""

import math
import sys
from pathlib import Path

import torch

import components
import ldm
import modes
from gpu_step import BLOCKS, CASES as TRAINED
from modes import captured

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/golden"))
from hashed_weights import projections  # noqa: E402
from hashed_weights import hashed_input  # noqa: E402
from record import fill_hashed, image, nhwc  # noqa: E402

STEPS = 1000
PROJECTIONS = 3
TOKENS = 77
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
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


# pictures, height and width
PICTURES = {"generate/sd15_512": (1, 512, 512), "generate/sd15_768x512": (1, 512, 768),
            "generate/sd15_8x512": (8, 512, 512), "generate/tiny": (2, 64, 96)}
TINY = dict(SD15, model_channels=64, channel_mult=[1, 2], num_res_blocks=1, input_depths=[1, 0],
            middle_depth=1, output_depths=[0, 0, 1, 1], num_heads=0, num_head_channels=64,
            context=64)


class Pictures:
    """Prompt and negative prompt to pixels of Stable Diffusion 1 in 20 steps."""

    steps, guidance = 20, 7.0

    def __init__(self, case, device, compiled):
        self.count, height, width = PICTURES[case]
        tiny = case.endswith("tiny")
        clip = dict(components.CLIP_L, **(dict(width=64, layers=2, heads=1, hidden=64)
                                          if tiny else {}))
        vae = components.TINY_VAE | {"channel_mult": [1, 2, 4, 4]} if tiny else components.VAE
        nets = [components.ClipText(clip), ldm.LdmUNet(TINY if tiny else SD15),
                components.Decode(vae)]
        nets = [fill_hashed(n).to(device, torch.bfloat16).eval() for n in nets]
        nets[1:] = [n.to(memory_format=torch.channels_last) for n in nets[1:]]
        nets = [n.requires_grad_(False) for n in nets]
        nets[1].fuse()
        self.text, self.unet, self.decode = [torch.compile(n) if compiled else n for n in nets]
        self.tokens = ((torch.arange(2 * TOKENS) * 613 + 320) % 49408).view(2, TOKENS).to(device)
        self.noise = torch.randn(self.count, 4, height // 8, width // 8, device=device)
        # Karras' levels of Stable Diffusion 1 and the timesteps nearest to them
        betas = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000, dtype=torch.float64) ** 2
        known = ((1 - (1 - betas).cumprod(0)) / (1 - betas).cumprod(0)) ** 0.5
        high, low = known[-1] ** (1 / 7), known[0] ** (1 / 7)
        self.sigmas = (high + torch.linspace(0, 1, self.steps) * (low - high)) ** 7
        nearest = (known.log()[None] - self.sigmas.log()[:, None]).abs().argmin(1)
        self.times = nearest.float().to(device)
        self.sigmas = [*self.sigmas.tolist(), 0.0]

    def denoised(self, x, i, text):
        sigma = self.sigmas[i]
        scaled = (x / (sigma ** 2 + 1) ** 0.5).to(torch.bfloat16)
        scaled = torch.cat([scaled, scaled]).contiguous(memory_format=torch.channels_last)
        times = self.times[i].expand(2 * self.count)
        eps = self.unet(scaled, times, text).float()
        uncond, cond = eps.chunk(2)
        return x - sigma * (uncond + self.guidance * (cond - uncond))

    def run(self):
        """Lu et al. 2022, DPM-Solver++ (2M), the last step of the first order."""
        with torch.no_grad():
            text = self.text(self.tokens).repeat_interleave(self.count, 0)
            x, before, last_h = self.noise * self.sigmas[0], None, 0.0
            for i in range(self.steps):
                d = self.denoised(x, i, text)
                sigma, to = self.sigmas[i], self.sigmas[i + 1]
                if to == 0:
                    x = d
                    break
                h = math.log(sigma / to)
                mixed = d if before is None else d + (d - before) * (0.5 * h / last_h)
                x = x * (to / sigma) - mixed * math.expm1(-h)
                before, last_h = d, h
            latents = (x / 0.18215).to(torch.bfloat16)
            latents = latents.contiguous(memory_format=torch.channels_last)
            images = [self.decode(latents[i:i + 1]) for i in range(self.count)]
            return torch.cat(images)


class Evaluation:
    """A network with inputs."""

    def __init__(self, case, device, batch=0, dtype=torch.bfloat16):
        build, config, own_batch, shape, unet = CASES[case]
        layout = torch.channels_last if unet else torch.contiguous_format
        self.net = fill_hashed(build(config)).to(device, dtype).eval()
        self.net = self.net.to(memory_format=layout).requires_grad_(False)
        if isinstance(self.net, ldm.LdmUNet):
            self.net.fuse()
        self.count = batch or own_batch
        self.x = image("input.x", (self.count, *shape[1:], shape[0]))
        self.x = self.x.to(device, dtype).contiguous(memory_format=layout)
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
        return values.to(self.x.device, torch.float32 if name == "size" else self.x.dtype)

    def run(self):
        with torch.no_grad():
            return self.net(self.x, *self.labels)


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
        if args.case in PICTURES:
            pictures = Pictures(args.case, args.device, "compile" in mode)
            pictures.run()
            return (captured(pictures.run) if "graph" in mode else pictures.run), {}
        of_component = args.case in components.CASES
        evaluation = (components.Evaluation(args.case, args.device) if of_component
                      else Evaluation(args.case, args.device, args.batch, DTYPES[args.dtype]))
        run = make_run(evaluation, mode)
        out = nhwc(run()).double().reshape(-1).cpu().numpy()
        check = [float((out ** 2).sum() ** 0.5), *projections("output", out)[:PROJECTIONS]]
        for _ in range(args.warmup):
            run()
        return run, {"batch": evaluation.count, "check": check}


if __name__ == "__main__":
    modes.main(__doc__, [*CASES, *components.CASES, *PICTURES], Evaluations())
