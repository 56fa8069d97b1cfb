"""Golden training steps of small control networks: losses, gradients, AdamW.

    python tools/golden/finetune_control_golden.py --out tests/golden

diffusers' ControlNet in float64 beside its U-Net, which is not trained, with torch's autograd and
AdamW: of Stable Diffusion 1, predicting eps and v, and of XL. Weights and inputs are hashed, those
of the control network by the names that it has in a loss (control.0.), its zero convolutions too:
so all of its layers have gradients.
"""

import argparse
import platform
from pathlib import Path

import diffusers
import torch

import ldm_cases
import ldm_golden
from finetune_golden import ADAMW, TIMESTEPS, alphas_bar, trained
from generate import write
from hashed_weights import hashed_input, hashed_parameter

BATCH, HEIGHT, WIDTH, TOKENS = 2, 8, 16, 7
PREFIX = "control.0."
CASES = {
    "eps": dict(network="control_sd1", prediction="eps"),
    "v": dict(network="control_sd1", prediction="v"),
    "xl": dict(network="control_sdxl", prediction="eps"),
}


def hashed(name, shape):
    return torch.from_numpy(hashed_input(name, shape)).double()


def image(name, height, width, channels):
    return hashed(name, [BATCH, height, width, channels]).permute(0, 3, 1, 2)


def fill(control, names):
    tensors = dict(control.named_parameters())
    with torch.no_grad():
        for original, name, shape in names:
            tensors[name].copy_(torch.from_numpy(hashed_parameter(PREFIX + original, shape)))


def networks(case):
    unet_name, hint_channels = ldm_cases.CONTROL_CASES[case["network"]]
    c = {**ldm_cases.DEFAULTS, **ldm_cases.CASES[unet_name], "hint_channels": hint_channels,
         "guidance_channels": 0}
    unet, control = ldm_cases.unet(c), ldm_cases.control(c)
    ldm_golden.fill(unet, ldm_cases.names_of(unet, c))
    names = ldm_cases.names_of(control, c)
    fill(control, names)
    originals = {name: PREFIX + original for original, name, _ in names}
    params = {originals[n]: p for n, p in control.double().named_parameters()}
    return c, unet.double().requires_grad_(False), control.requires_grad_(True), params


def inputs_of(c):
    pixels = 2 ** (len(c["hint_channels"]) - 1)
    out = {"images": image("input.images", HEIGHT, WIDTH, c["in_channels"]),
           "noise": image("input.noise", HEIGHT, WIDTH, c["in_channels"]),
           "hint.0": image("input.hint.0", pixels * HEIGHT, pixels * WIDTH, 3),
           "text": hashed("input.text", [BATCH, TOKENS, c["context"]])}
    if c["vector"]:
        pooled = c["vector"] - c["sizes"] * c["size_channels"]
        out["pooled"] = hashed("input.pooled", [BATCH, pooled])
        out["size"] = torch.tensor(ldm_golden.NUMBERS, dtype=torch.float64)
    return out


def loss_of(unet, control, case, inputs):
    bar = alphas_bar(False)[TIMESTEPS].view(-1, 1, 1, 1)
    signal, sigma = bar.sqrt(), (1 - bar).sqrt()
    x = signal * inputs["images"] + sigma * inputs["noise"]
    more = {}
    if "size" in inputs:
        more = dict(added_cond_kwargs={"text_embeds": inputs["pooled"],
                                       "time_ids": inputs["size"]})
    t = torch.tensor(TIMESTEPS)
    down, middle = control(x, t, inputs["text"], inputs["hint.0"], return_dict=False, **more)
    f = unet(x, t, inputs["text"], down_block_additional_residuals=down,
             mid_block_additional_residual=middle, **more).sample
    target = inputs["noise"]
    if case["prediction"] == "v":
        target = signal * inputs["noise"] - sigma * inputs["images"]
    return ((f - target) ** 2).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    cases = {}
    for name, case in CASES.items():
        c, unet, control, params = networks(case)
        inputs = inputs_of(c)
        sizes = {k: list(v.shape) if v.dim() < 4 else [v.shape[i] for i in (0, 2, 3, 1)]
                 for k, v in inputs.items()}
        cases[name] = {
            **case, "config": ldm_golden.without(c, ["image_size", "extra_channels",
                                                     "output_depths"]),
            "unet": ldm_golden.without(c, ["hint_channels"]), "inputs": sizes,
            "steps": trained(lambda: loss_of(unet, control, case, inputs), params)}
    write(out / "finetune_control.json", {
        "generator": "tools/golden/finetune_control_golden.py",
        "versions": {"torch": torch.__version__, "diffusers": diffusers.__version__,
                     "python": platform.python_version()},
        "timesteps": TIMESTEPS, "sizes": ldm_golden.NUMBERS,
        "adamw": {"lr": ADAMW["lr"], "eps": ADAMW["eps"], "beta1": 0.9, "beta2": 0.999,
                  "weight_decay": ADAMW["weight_decay"]},
        "cases": cases})


if __name__ == "__main__":
    main()
