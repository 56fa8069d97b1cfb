"""Writes a whole checkpoint of Stable Diffusion 1.5 with random weights in f16, in the original
names: 2.1 GB, for timing only.

    python bench/random_checkpoint.py sd15.safetensors
"""

import argparse
import pathlib
import sys

PARSER = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("out")
ARGS = PARSER.parse_args()  # before torch is looked for: --help needs none

BENCH = pathlib.Path(__file__).resolve().parent
# where torch is not installed, the folder bench/torch is not to pass for it
sys.path[:] = [p for p in sys.path if pathlib.Path(p).resolve() != BENCH]
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

sys.path[:0] = [str(BENCH / "torch"), str(BENCH.parent / "tools/golden")]
import components  # noqa: E402
import ldm  # noqa: E402
from gpu_denoise import SD15  # noqa: E402


def random_weights(shapes):
    generator = torch.Generator().manual_seed(0)
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=generator) * 0.02
        if len(shape) == 1 and name.endswith("weight"):
            values += 1  # of a norm
        yield name, values.half()


def main():
    with torch.device("meta"):
        parts = [("model.diffusion_model.", ldm.LdmUNet(SD15)),
                 ("first_stage_model.", components.Encode(components.VAE)),
                 ("first_stage_model.", components.Decode(components.VAE)),
                 ("cond_stage_model.transformer.", components.ClipText(components.CLIP_L))]
    shapes = {prefix + name: value.shape
              for prefix, net in parts for name, value in net.state_dict().items()}
    save_file(dict(random_weights(shapes)), ARGS.out)


if __name__ == "__main__":
    main()
