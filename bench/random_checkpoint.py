"""Writes a whole checkpoint of Stable Diffusion 1.5 (2.1 GB) or XL (6.9 GB) with random weights in
f16, in the original names, to measure time and memory with.

    python bench/random_checkpoint.py sd15.safetensors
    python bench/random_checkpoint.py --model sdxl sdxl.safetensors
"""

import argparse
import pathlib
import sys

PARSER = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("out")
PARSER.add_argument("--model", choices=("sd15", "sdxl"), default="sd15")
ARGS = PARSER.parse_args()  # before torch is looked for: --help needs none

BENCH = pathlib.Path(__file__).resolve().parent
# where torch is not installed, the folder bench/torch is not to pass for it
sys.path[:] = [p for p in sys.path if pathlib.Path(p).resolve() != BENCH]
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

sys.path[:0] = [str(BENCH / "torch"), str(BENCH.parent / "tools/golden")]
import components  # noqa: E402
import ldm  # noqa: E402
from gpu_denoise import SD15, SDXL  # noqa: E402


def random_weights(shapes):
    generator = torch.Generator().manual_seed(0)
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=generator) * 0.02
        if len(shape) == 1 and name.endswith("weight"):
            values += 1  # of a norm
        yield name, values.half()


def open_clip_g():
    """Shapes of the text encoder of OpenCLIP's bigG, which only Stable Diffusion XL has."""
    width, hidden, layers = 1280, 5120, 32
    shapes = {"token_embedding.weight": (49408, width), "positional_embedding": (77, width),
              "text_projection": (width, width), "logit_scale": ()}

    def linear(name, out, into):
        shapes[name + ".weight"], shapes[name + ".bias"] = (out, into), (out,)

    def norm(name):
        shapes[name + ".weight"] = shapes[name + ".bias"] = (width,)

    norm("ln_final")
    for i in range(layers):
        block = f"transformer.resblocks.{i}."
        norm(block + "ln_1")
        norm(block + "ln_2")
        shapes[block + "attn.in_proj_weight"] = (3 * width, width)
        shapes[block + "attn.in_proj_bias"] = (3 * width,)
        linear(block + "attn.out_proj", width, width)
        linear(block + "mlp.c_fc", hidden, width)
        linear(block + "mlp.c_proj", width, hidden)
    return shapes


def shapes_of(net):
    return {name: value.shape for name, value in net.state_dict().items()}


def main():
    with torch.device("meta"):
        clip = shapes_of(components.ClipText(components.CLIP_L))
        parts = [("first_stage_model.", shapes_of(components.Encode(components.VAE))),
                 ("first_stage_model.", shapes_of(components.Decode(components.VAE)))]
        if ARGS.model == "sdxl":
            parts += [("model.diffusion_model.", shapes_of(ldm.LdmUNet(SDXL))),
                      ("conditioner.embedders.0.transformer.", clip),
                      ("conditioner.embedders.1.model.", open_clip_g())]
        else:
            parts += [("model.diffusion_model.", shapes_of(ldm.LdmUNet(SD15))),
                      ("cond_stage_model.transformer.", clip)]
    shapes = {prefix + name: shape for prefix, part in parts for name, shape in part.items()}
    save_file(dict(random_weights(shapes)), ARGS.out)


if __name__ == "__main__":
    main()
