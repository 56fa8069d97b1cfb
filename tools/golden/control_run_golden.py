"""Golden runs with control networks: python control_run_golden.py --out tests/golden --merges FILE.

As text_to_image_golden.py, with diffusers' ControlNetModel called as its pipelines call it:
strength, first and last share of the steps, guess mode, several networks whose residuals are
summed. Then diffusers' T2IAdapter as its pipelines call it. All networks of a run have the weights
of one; images are pattern(height, width, seed).
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import text_to_image_golden as runs  # noqa: E402
import component_golden  # noqa: E402
import diffusers  # noqa: E402
import ldm_cases  # noqa: E402
import ldm_golden  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

SD1 = dict(unet=runs.SD1, texts=[runs.TEXT], scheduler="euler", steps=20, height=64, width=64)
XL = dict(unet=runs.XL, texts=runs.XL_TEXTS, scheduler="euler", steps=20, height=64, width=96)
HINT_CHANNELS = [8, 16, 24, 32]

CASES = {
    "sd1": (SD1, [dict(seed=1, strength=0.8)]),
    "sd1_part": (SD1, [dict(seed=1, strength=1.0, start=0.2, end=0.6)]),
    "sd1_guess": (SD1, [dict(seed=2, strength=0.9, mode="guess")]),
    "sd1_two": (SD1, [dict(seed=1, strength=0.5, end=0.5), dict(seed=2, strength=0.7)]),
    "xl": (XL, [dict(seed=3, strength=0.6)]),
}
# residuals are means over the image, as of the network for shuffled images
POOLED_CASES = {"sd1_pooled": (SD1, [dict(seed=2, strength=0.9, mode="guess")])}

XL3 = dict(XL, unet=dict(runs.XL, channel_mult=[1, 2, 2], input_depths=[0, 0, 1, 1, 2, 2],
                         output_depths=[2, 2, 2, 1, 1, 1, 0, 0, 0]))
ATTENTION_FIRST = dict(SD1, unet=dict(runs.SD1, input_depths=[1, 1, 0, 0],
                                      output_depths=[0, 0, 0, 1, 1, 1]))
# T2I-Adapters: full, light, of XL
ADAPTER_CASES = {
    "t2i": (ATTENTION_FIRST, dict(channels=[32, 64], blocks=2, unshuffle=8),
            dict(seed=1, strength=0.8)),
    "t2i_light": (ATTENTION_FIRST, dict(channels=[32, 64], blocks=3, unshuffle=8, light=True),
                  dict(seed=2, strength=1.0, end=0.5)),
    "t2i_xl": (XL3, dict(channels=[32, 64, 64, 64], blocks=2, unshuffle=16),
               dict(seed=3, strength=0.7)),
}


def pattern(height, width, seed):
    """u8 [H,W,3]"""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return ((y * (3 + seed) + x * 5 + c * 70 + (y * x) // 9 * seed) % 256).astype(np.uint8)


def controls(case, inputs, pooled=False):
    c = {**ldm_cases.DEFAULTS, **case["unet"], "hint_channels": HINT_CHANNELS}
    network = ldm_cases.control(c).eval()
    network.register_to_config(global_pool_conditions=pooled)
    ldm_golden.fill(network, ldm_cases.names_of(network, c))

    def call(step, steps, x, t, states, more):
        down, middle = None, None
        for i in inputs:
            image = pattern(case["height"], case["width"], i["seed"])
            hint = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255
            off = step / steps < i.get("start", 0) or (step + 1) / steps > i.get("end", 1)
            strength = 0.0 if off else i["strength"]
            guess = i.get("mode") == "guess"
            given = (lambda v: v.chunk(2)[1]) if guess else lambda v: v
            added = {k: given(v) for k, v in more.get("added_cond_kwargs", {}).items()}
            hint = hint if guess else torch.cat([hint, hint])
            d, m = network(given(x), t, given(states), hint, strength, guess_mode=guess,
                           added_cond_kwargs=added or None, return_dict=False)
            if guess:
                d, m = [torch.cat([torch.zeros_like(r), r]) for r in d], torch.cat(
                    [torch.zeros_like(m), m])
            down = d if down is None else [a + b for a, b in zip(down, d)]
            middle = m if middle is None else middle + m
        return {"down_block_additional_residuals": tuple(down),
                "mid_block_additional_residual": middle}

    return c, call


def adapter_name(name, c):
    """The original's name of a tensor of diffusers' T2IAdapter."""
    name = name.removeprefix("adapter.")
    block = re.match(r"body\.(\d+)\.(?:resnets\.(\d+)\.)?(.*)", name)
    if not block:
        return name
    level, index, rest = int(block[1]), block[2], block[3]
    if c.get("light"):
        return f"body.{level}." + (f"body.{index}." if index else "") + rest
    return f"body.{level * c['blocks'] + int(index or 0)}.{rest}"


def adapters(case, c, given):
    kind = "light_adapter" if c.get("light") else (
        "full_adapter_xl" if c["unshuffle"] == 16 else "full_adapter")
    # its light adapter makes features more than it is told, which this U-Net does not take
    network = diffusers.T2IAdapter(in_channels=3, channels=c["channels"],
                                   num_res_blocks=c["blocks"], downscale_factor=c["unshuffle"],
                                   adapter_type=kind)
    component_golden.fill(network, lambda n: adapter_name(n, c))
    image = pattern(case["height"], case["width"], given["seed"])
    features = network(torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255)

    def call(step, steps, x, t, states, more):
        if step >= int(steps * given.get("end", 1)):
            return {}
        strength = given["strength"]
        return {"down_intrablock_additional_residuals":
                [torch.cat([f, f]) * strength for f in features]}

    names = {adapter_name(n, c): n for n, _ in network.named_parameters()}
    return call, names


def all_runs(tokenizer):
    out = []
    for name, (case, inputs) in CASES.items():
        c, call = controls(case, inputs)
        config = ldm_golden.without(c, ["image_size", "extra_channels", "output_depths"])
        out.append({**runs.run(name, case, tokenizer, call), "control": config, "inputs": inputs})
    for name, (case, c, given) in ADAPTER_CASES.items():
        call, names = adapters(case, c, given)
        out.append({**runs.run(name, case, tokenizer, call), "adapter": c, "inputs": [given],
                    "names": {k: v for k, v in names.items() if k != v}})
    for name, (case, inputs) in POOLED_CASES.items():
        c, call = controls(case, inputs, True)
        config = ldm_golden.without(c, ["image_size", "extra_channels", "output_depths"])
        out.append({**runs.run(name, case, tokenizer, call),
                    "control": {**config, "pooled": True}, "inputs": inputs})
    return {"runs": out}


def main():
    runs.record_runs(__doc__, "control_runs.json", all_runs)


if __name__ == "__main__":
    main()
