"""Golden files of image adapters that act in a region of the picture, or in some blocks alone:
python ip_adapter_region_golden.py --out tests/golden --merges FILE.

Whole runs as in ip_adapter_golden.py, with diffusers' IPAdapterMaskProcessor and
set_ip_adapter_scale. A mask is a rectangle [top, left, bottom, right] of white, of the picture's
size.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent))
import text_to_image_golden as runs  # noqa: E402
import ip_adapter_golden as adapters  # noqa: E402
import ldm_cases  # noqa: E402
import numpy as np  # noqa: E402
import PIL.Image  # noqa: E402
from diffusers.image_processor import IPAdapterMaskProcessor  # noqa: E402
from diffusers.loaders import IPAdapterMixin  # noqa: E402

LEVELS, LINEAR, RESAMPLER, XL = adapters.LEVELS, adapters.LINEAR, adapters.RESAMPLER, adapters.XL
# `scale` is diffusers', `blocks` the same as ebb writes it
SOME = dict(scale={"down": {"block_1": [0.0, 0.6]}, "mid": 0.3, "up": {"block_0": [0.0, 0.9, 0.0]}},
            blocks="down.1.1=0.6,up.0.1=0.9,mid=0.3")
STYLE = dict(scale={"up": {"block_0": [0.0, 0.8, 0.0]}}, blocks="style=0.8")
RUNS = {
    "sd1_mask": (LEVELS, [(LINEAR, dict(seed=1, strength=0.9, mask=[8, 0, 56, 40]))]),
    "sd1_two_masks": (LEVELS, [
        (LINEAR, dict(seed=1, strength=0.8, mask=[0, 0, 64, 27])),
        (RESAMPLER, dict(seed=3, strength=0.7, mask=[0, 27, 64, 64]))]),
    # latents of 9x7, whose halves are 5x4
    "sd1_odd_mask": (dict(LEVELS, height=72, width=56), [
        (LINEAR, dict(seed=2, strength=1.0, mask=[20, 10, 72, 50]))]),
    "sd1_blocks": (LEVELS, [(LINEAR, dict(seed=1, strength=1.0, **SOME))]),
    "xl_style": (XL, [(LINEAR, dict(seed=2, strength=1.0, **STYLE)),
                      (RESAMPLER, dict(seed=1, strength=0.5))]),
    "xl_style_mask": (XL, [(RESAMPLER, dict(seed=2, strength=1.0, mask=[16, 40, 64, 96],
                                            **STYLE))]),
}


def grey(given, case):
    out = np.zeros((case["height"], case["width"]), np.uint8)
    top, left, bottom, right = given["mask"]
    out[top:bottom, left:right] = 255
    return PIL.Image.fromarray(out)


def set_scales(unet, scales):
    IPAdapterMixin.set_ip_adapter_scale(SimpleNamespace(unet=unet), scales)


def run(name, case, given, tokenizer):
    c = {**ldm_cases.DEFAULTS, **case["unet"]}
    made = [{**a, "context": c["context"], **adapters.layers_of(c)} for a, _ in given]
    encoder = adapters.vision_model(adapters.VISION)
    embeds = [adapters.features(encoder, a, i) for a, (_, i) in zip(made, given)]
    kwargs = {}
    if "mask" in given[0][1]:
        masks = IPAdapterMaskProcessor().preprocess(
            [grey(i, case) for _, i in given], height=case["height"], width=case["width"])
        kwargs = {"cross_attention_kwargs": {"ip_adapter_masks": [m[None] for m in masks]}}

    def control(step, steps, x, t, states, more):
        conditions = {**more.get("added_cond_kwargs", {}), "image_embeds": embeds}
        return {"added_cond_kwargs": conditions, **kwargs}

    def prepare(unet):
        unet._load_ip_adapter_weights([adapters.parts(a) for a in made], low_cpu_mem_usage=False)
        set_scales(unet, [i.get("scale", i["strength"]) for _, i in given])
        unet.eval().requires_grad_(False)

    out = runs.run(name, case, tokenizer, control, prepare)
    return {**out, "adapters": made, "encoder": adapters.VISION, "inputs": [i for _, i in given]}


def main():
    runs.record_runs(__doc__, lambda tokenizer: {"image_adapter_regions.json": {
        "runs": [run(name, case, given, tokenizer) for name, (case, given) in RUNS.items()]}})


if __name__ == "__main__":
    main()
