"""Golden runs with control networks: python control_run_golden.py --out tests/golden --merges FILE.

As text_to_image_golden.py, with diffusers' ControlNetModel called as its pipelines call it:
strength, first and last share of the steps, guess mode, several networks whose residuals are
summed. Then diffusers' T2IAdapter as its pipelines call it, ControlNetUnionModel with a task, and
ControlNetModel with the weights that a control LoRA makes of the U-Net's. All networks of a run
have the weights of one; images are pattern(height, width, seed).
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
from hashed_weights import hashed_parameter  # noqa: E402

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

# networks of several tasks: the number is the task's
UNION_CASES = {
    "union_depth": (XL, [dict(seed=3, strength=0.6, task="depth", number=1)],
                    dict(tasks=6, task_layers=1)),
    "union_two": (XL, [dict(seed=1, strength=0.5, task="tile", number=6),
                       dict(seed=2, strength=0.8, task="canny", number=3, end=0.5)],
                  dict(tasks=8, task_layers=2)),
}
LORA_CASES = {"lora_xl": (XL, [dict(seed=1, strength=0.7)], 3),
              "lora_sd1": (SD1, [dict(seed=2, strength=0.9)], 4)}

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


def fill_union(network, names):
    """As ldm_golden.fill(); of attention there are the values alone in ebb."""
    ldm_golden.fill(network, names)
    with torch.no_grad():
        for i, layer in enumerate(network.transformer_layes):
            for tensor in ("weight", "bias"):
                p = getattr(layer.attn, f"in_proj_{tensor}")
                width = p.shape[0] // 3
                name = f"transformer_layes.{i}.attn.v_proj.{tensor}"
                p[2 * width:] = torch.from_numpy(hashed_parameter(name, [width, *p.shape[1:]]))


def fill_lora(network, names, rank):
    """The weights of the U-Net with the changes of a control LoRA, whose tensors are hashed by
    their names behind "control_lora."."""
    tensors = dict(network.named_parameters())

    def of_file(name, shape):
        return torch.from_numpy(hashed_parameter(f"control_lora.{name}", shape))

    with torch.no_grad():
        for original, name, shape in names:
            own = original.startswith(("zero_convs", "middle_block_out", "input_hint_block"))
            if own or len(shape) == 1:
                tensors[name].copy_(of_file(original, shape))
                continue
            stem = original.removesuffix(".weight")
            up = of_file(f"{stem}.up", [shape[0], rank, *[1] * (len(shape) - 2)])
            down = of_file(f"{stem}.down", [rank, *shape[1:]])
            change = (up.flatten(1) @ down.flatten(1)).reshape(shape)
            base = torch.from_numpy(hashed_parameter(original, shape))
            tensors[name].copy_(base + change)


def controls(case, inputs, pooled=False, union=None, rank=0):
    c = {**ldm_cases.DEFAULTS, **case["unet"], "hint_channels": HINT_CHANNELS, **(union or {})}
    network = (ldm_cases.union if union else ldm_cases.control)(c).eval()
    network.register_to_config(global_pool_conditions=pooled)
    names = ldm_cases.names_of(network, c)
    if union:
        fill_union(network, names)
    elif rank:
        fill_lora(network, names, rank)
    else:
        ldm_golden.fill(network, names)

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
            called = dict(conditioning_scale=strength, controlnet_cond=hint)
            if union:
                kind = torch.zeros(c["tasks"]).scatter_(0, torch.tensor([i["number"]]), 1)
                called.update(controlnet_cond=[hint], control_type_idx=[i["number"]],
                              control_type=kind[None].repeat(hint.shape[0], 1))
            d, m = network(given(x), t, given(states), **called, guess_mode=guess,
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
    kinds = []
    for name, (case, inputs, union) in UNION_CASES.items():
        c, call = controls(case, inputs, union=union)
        config = ldm_golden.without(c, ["image_size", "extra_channels", "output_depths"])
        kinds.append({**runs.run(name, case, tokenizer, call), "control": config,
                      "inputs": inputs})
    for name, (case, inputs, rank) in LORA_CASES.items():
        c, call = controls(case, inputs, rank=rank)
        config = ldm_golden.without(c, ["image_size", "extra_channels", "output_depths"])
        kinds.append({**runs.run(name, case, tokenizer, call), "control": config, "rank": rank,
                      "inputs": inputs})
    return {"control_runs.json": {"runs": out}, "control_kind_runs.json": {"runs": kinds}}


def main():
    runs.record_runs(__doc__, all_runs)


if __name__ == "__main__":
    main()
