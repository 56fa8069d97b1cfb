"""Golden outputs of diffusers' U-Nets and control networks.

    python tools/golden/ldm_golden.py --out tests/golden/ldm

Weights and inputs are hashed, weights by the ORIGINAL's tensor names. diffusers is run from PyPI.
"""

import argparse
import copy
import platform
from pathlib import Path

import diffusers
import numpy as np
import torch

import ldm_cases
from generate import write
from hashed_weights import fnv1a64, hashed_input, hashed_parameter
from record import image, image_spec, in_float64, in_low, nhwc, rel_error, summary
from references import exact_mode

BATCH, TOKENS = 2, 7
LOW = {"bf16": torch.bfloat16, "f16": torch.float16}
NUMBERS = [[1024, 768, 0, 16, 512, 640], [512, 512, 8, 0, 1024, 1024]]


def fill(module, names):
    tensors = dict(module.named_parameters())
    with torch.no_grad():
        for original, name, shape in names:
            tensors[name].copy_(torch.from_numpy(hashed_parameter(original, shape)))
    return module.eval().requires_grad_(False)


def inputs_of(name, c):
    """The inputs as tensors, and what the golden file says of them."""
    height, width = ldm_cases.SIZES.get(name, (c["image_size"],) * 2)
    inputs, specs = {}, {}

    def add_image(key, channels):
        shape = [BATCH, height, width, channels]
        inputs[key], specs[key] = image(f"input.{key}", shape), image_spec(f"input.{key}", shape)

    def add_hashed(key, shape):
        inputs[key] = torch.from_numpy(hashed_input(f"input.{key}", shape))
        specs[key] = {"hash": f"input.{key}", "shape": shape, "scale": "sqrt(3)"}

    def add_values(key, values):
        inputs[key] = torch.tensor(values, dtype=torch.float32)
        specs[key] = {"values": torch.tensor(values).reshape(-1).tolist(),
                      "shape": list(inputs[key].shape)}

    add_image("x", c["in_channels"])
    add_values("noise", [17.0, 803.0])
    add_hashed("text", [BATCH, TOKENS, c["context"]])
    if c["vector"]:
        add_hashed("pooled", [BATCH, c["vector"] - c["sizes"] * c["size_channels"]])
        add_values("size", [row[:c["sizes"]] for row in NUMBERS])
    if c["guidance_channels"]:
        add_values("guidance", [7.5, 2.25])
    if c["extra_channels"]:
        add_image("concat", c["extra_channels"])
    return inputs, specs


def guidance_embedding(scale, channels):
    """As the pipelines of latent consistency models make it: [sin, cos] of 1000 (scale - 1)."""
    half = channels // 2
    step = np.log(10000.0) / (half - 1)
    frequency = torch.exp(torch.arange(half, dtype=scale.dtype) * -step)
    angle = (1000 * (scale - 1))[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def call_of(c):
    def call(module, i):
        x = torch.cat([i["x"], i["concat"]], 1) if "concat" in i else i["x"]
        more = {}
        if "size" in i:
            more["added_cond_kwargs"] = {"text_embeds": i["pooled"], "time_ids": i["size"]}
        if "guidance" in i:
            more["timestep_cond"] = guidance_embedding(i["guidance"], c["guidance_channels"])
        return module(x, i["noise"], encoder_hidden_states=i["text"], **more).sample

    return call


def output_of(module, call, inputs, name="output"):
    """What a golden file says of an output."""
    low = {n: in_low(copy.deepcopy(module), call, inputs, t) for n, t in LOW.items()}
    single = call(module, inputs)
    with exact_mode():
        exact = call(copy.deepcopy(module).double(), in_float64(inputs))
    out = summary(name, nhwc(exact), nhwc(single), first=64 if name == "output" else 4)
    errors = {f"{n}_rel_error": float(f"{rel_error(v, exact):.3g}") for n, v in low.items()}
    return {**out, "layout": "NHWC", **errors}


def unet_case(name):
    c = {**ldm_cases.DEFAULTS, **ldm_cases.CASES[name]}
    module = ldm_cases.unet(c)
    names = ldm_cases.names_of(module, c)
    fill(module, names)
    inputs, specs = inputs_of(name, c)
    return {"case": name, "model": "ldm_unet", "config": c, "inputs": specs,
            "output": output_of(module, call_of(c), inputs), "names": names}


def without(c, names):
    return {k: v for k, v in c.items() if k not in names}


def control_case(name):
    """Residuals, each by itself, and what the U-Net makes of them."""
    unet_name, hint_channels = ldm_cases.CONTROL_CASES[name]
    c = {**ldm_cases.DEFAULTS, **ldm_cases.CASES[unet_name], "hint_channels": hint_channels,
         "guidance_channels": 0}
    control, unet = ldm_cases.control(c), ldm_cases.unet(c)
    names = ldm_cases.names_of(control, c)
    fill(control, names)
    fill(unet, ldm_cases.names_of(unet, c))
    inputs, specs = inputs_of(unet_name, c)
    height, width = (2 ** (len(hint_channels) - 1) * n for n in specs["x"]["shape"][1:3])
    shape = [BATCH, height, width, 3]
    inputs["hint"], specs["hint"] = image("input.hint", shape), image_spec("input.hint", shape)
    strength = 0.75

    def residuals(module, i):
        more = {"text_embeds": i["pooled"], "time_ids": i["size"]} if "size" in i else None
        down, middle = module(i["x"], i["noise"], i["text"], i["hint"], strength,
                              added_cond_kwargs=more, return_dict=False)
        return [*down, middle]

    def controlled(module, i):
        more = {"text_embeds": i["pooled"], "time_ids": i["size"]} if "size" in i else None
        *down, middle = residuals(module[0], i)
        return module[1](i["x"], i["noise"], i["text"], added_cond_kwargs=more,
                         down_block_additional_residuals=tuple(down),
                         mid_block_additional_residual=middle).sample

    count = len(residuals(control, inputs))
    parts = [output_of(control, lambda m, i, k=k: residuals(m, i)[k], inputs, f"control.{k}")
             for k in range(count)]
    both = torch.nn.ModuleList([control, unet])
    return {"case": name, "model": "control_net",
            "config": without(c, ["image_size", "extra_channels", "output_depths"]),
            "unet": without(c, ["hint_channels"]), "strength": strength, "inputs": specs,
            "residuals": parts, "output": output_of(both, controlled, inputs), "names": names}


def published():
    """Counts of the published networks, and a hash of all their names and shapes."""
    out = {}
    networks = [(n, c, ldm_cases.unet) for n, c in ldm_cases.PUBLISHED.items()]
    networks += [(n, c, ldm_cases.control) for n, c in ldm_cases.PUBLISHED_CONTROL.items()]
    for name, changes, build in networks:
        c = {**ldm_cases.DEFAULTS, **changes}
        module = ldm_cases.on_meta(build, c)
        names = ldm_cases.names_of(module, c)
        text = "".join(f"{o} {d} {'x'.join(map(str, s))}\n" for o, d, s in sorted(names))
        out[name] = {"tensors": len(names), "hash": f"{fnv1a64(text):016x}",
                     "parameters": sum(p.numel() for p in module.parameters())}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="write only what has this in its name")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    versions = {"python": platform.python_version(), "torch": torch.__version__,
                "diffusers": diffusers.__version__, "numpy": np.__version__,
                "rule": "tools/golden/hashed_weights.py"}
    for name in ldm_cases.CASES:
        if args.only in name:
            write(args.out / f"{name}.json", {"generator": versions, **unet_case(name)})
    for name in ldm_cases.CONTROL_CASES:
        if args.only in name:
            write(args.out / f"{name}.json", {"generator": versions, **control_case(name)})
    if args.only in "ldm_published":
        write(args.out / "ldm_published.json", {"generator": versions, **published()})


if __name__ == "__main__":
    main()
