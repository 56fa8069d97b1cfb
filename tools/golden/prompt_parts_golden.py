"""Golden runs of prompts of several parts: python prompt_parts_golden.py --out tests/golden
--merges FILE.

Each part is a prediction of diffusers' U-Net; guidance adds their weighted differences from the
negative prompt's (A1111's AND). Sizes, weights and noise are those of text_to_image_golden.py.
"""

import argparse
import gzip
import platform
from pathlib import Path

import text_to_image_golden as base  # sets what torch reads at its start

import diffusers
import torch
import transformers

import tokenizer_golden
from generate import write

PARTS = [("a red fox in deep snow", 1), ("the sea at dawn", 0.6), ("a crowd", -0.25)]
CASES = {
    "sd1_euler": dict(unet=base.SD1, texts=[base.TEXT], scheduler="euler", steps=20, height=64,
                      width=64, parts=PARTS),
    "sd1_one_weight": dict(unet=base.SD1, texts=[base.TEXT], scheduler="euler", steps=20,
                           height=64, width=64, parts=[("a red fox in deep snow", 0.5)]),
    "xl_dpmpp_2m": dict(unet=base.XL, texts=base.XL_TEXTS, scheduler="dpmpp_2m", steps=20,
                        height=64, width=96, parts=PARTS[:2]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--merges", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = gzip.open(args.merges, "rt", encoding="utf-8").read().split("\n")
    tokenizer = tokenizer_golden.reference(lines[1:48895])
    with torch.no_grad():
        runs = [base.run(name, case, tokenizer) for name, case in CASES.items()]
    write(args.out / "prompt_parts.json", {
        "generator": {"python": platform.python_version(), "torch": torch.__version__,
                      "diffusers": diffusers.__version__,
                      "transformers": transformers.__version__,
                      "rule": "tools/golden/hashed_weights.py"}, "runs": runs})


if __name__ == "__main__":
    main()
