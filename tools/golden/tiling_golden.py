"""Golden runs of pictures that tile: python tiling_golden.py --out tests/golden --merges FILE.

The run of text_to_image_golden.py with all padded convolutions of U-Net and autoencoder circular,
along both axes (torch's padding_mode) or along one of them (padded by hand).
"""

import argparse
import gzip
import platform
from pathlib import Path

import text_to_image_golden as base  # sets what torch reads at its start

import diffusers
import torch
import torch.nn.functional as F
import transformers

import tokenizer_golden
from generate import write

CASE = dict(unet=base.SD1, texts=[base.TEXT], scheduler="euler", steps=20, height=64, width=96)


def padded(axis):
    """torch's convolution with circular padding along x or y, and zeros along the other."""
    def forward(self, x, weight, bias):
        if self.padding == (0, 0):
            return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        h, w = self.padding
        sides = {"x": (w, w, 0, 0), "y": (0, 0, h, h)}
        x = F.pad(x, sides[axis], mode="circular")
        x = F.pad(x, sides["y" if axis == "x" else "x"])
        return F.conv2d(x, weight, bias, self.stride, 0, self.dilation, self.groups)
    return forward


def run(name, axes, tokenizer):
    conv, plain = torch.nn.Conv2d, torch.nn.Conv2d._conv_forward
    init = conv.__init__
    if axes == "both":
        def with_mode(self, *args, **more):
            init(self, *args, **{**more, "padding_mode": "circular"})
        conv.__init__ = with_mode
    else:
        conv._conv_forward = padded(axes)
    try:
        return {**base.run(name, CASE, tokenizer), "tiling": axes}
    finally:
        conv.__init__, conv._conv_forward = init, plain


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--merges", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = gzip.open(args.merges, "rt", encoding="utf-8").read().split("\n")
    tokenizer = tokenizer_golden.reference(lines[1:48895])
    with torch.no_grad():
        runs = [run(axes, axes, tokenizer) for axes in ("both", "x", "y")]
    write(args.out / "tiling.json", {
        "generator": {"python": platform.python_version(), "torch": torch.__version__,
                      "diffusers": diffusers.__version__,
                      "transformers": transformers.__version__,
                      "rule": "tools/golden/hashed_weights.py"}, "runs": runs})


if __name__ == "__main__":
    main()
