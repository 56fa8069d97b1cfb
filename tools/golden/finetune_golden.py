"""Golden training steps of a small U-Net of Stable Diffusion 1: losses, gradients, AdamW.

    python tools/golden/finetune_golden.py --out tests/golden

diffusers' network in float64, with torch's autograd and AdamW. The low-rank adapter is the formula
of PEFT, y = base(x) + alpha / r * up(down(x)), beside every linear layer and 1x1 convolution of the
transformers. Weights, factors and inputs are hashed.
"""

import argparse
import platform
from pathlib import Path

import diffusers
import torch

import ldm_cases
import ldm_golden
from generate import write
from hashed_weights import hashed_input, hashed_parameter, projections

BATCH, HEIGHT, WIDTH, TOKENS = 2, 8, 16, 7
TIMESTEPS = [17, 803]
RANK, ALPHA = 4, 2.0
ADAMW = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
STEPS = 3
CASES = {
    "eps": dict(prediction="eps", zero_snr=False, gamma=None),
    "v_min_snr": dict(prediction="v", zero_snr=False, gamma=5.0),
    "v_zero_snr": dict(prediction="v", zero_snr=True, gamma=None),
}


def alphas_bar(zero_snr):
    """Cumulative products; with zero terminal SNR as Lin et al. 2023, algorithm 1, has it."""
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
    bar = (1 - betas).cumprod(0)
    if not zero_snr:
        return bar
    root = bar.sqrt()
    return ((root - root[-1]) * root[0] / (root[0] - root[-1])) ** 2


def image(name):
    return torch.from_numpy(hashed_input(name, [BATCH, HEIGHT, WIDTH, 4])).double() \
        .permute(0, 3, 1, 2)


def loss_of(unet, case, inputs):
    bar = alphas_bar(case["zero_snr"])[TIMESTEPS].view(-1, 1, 1, 1)
    signal, sigma = bar.sqrt(), (1 - bar).sqrt()
    x = signal * inputs["images"] + sigma * inputs["noise"]
    f = unet(x, torch.tensor(TIMESTEPS), encoder_hidden_states=inputs["text"]).sample
    target = inputs["noise"]
    if case["prediction"] == "v":
        target = signal * inputs["noise"] - sigma * inputs["images"]
    error = (f - target) ** 2
    if case["gamma"]:
        snr = bar / (1 - bar)
        error = error * snr.clamp(max=case["gamma"]) / (snr + 1)
    return error.mean()


def record(name, tensor):
    """The norm of a tensor, and its product with signs."""
    flat = tensor.detach().reshape(-1).numpy()
    return [float(f"{v:.8g}") for v in (float(tensor.detach().norm()), *projections(name, flat, 1))]


def network():
    c = {**ldm_cases.DEFAULTS, **ldm_cases.CASES["ldm_sd1"]}
    unet = ldm_cases.unet(c)
    names = ldm_cases.names_of(unet, c)
    ldm_golden.fill(unet, names)
    return c, unet.double().requires_grad_(True), names


def trained(loss, params):
    """Gradients of the first step, losses of all, and what params are behind the last."""
    optimiser = torch.optim.AdamW(params.values(), **ADAMW)
    out = {"losses": [], "grads": {}, "after": {}}
    for step in range(STEPS):
        optimiser.zero_grad()
        value = loss()
        value.backward()
        out["losses"].append(float(value.detach()))
        if step == 0:
            out["grads"] = {n: record(n, p.grad) for n, p in params.items()}
        optimiser.step()
    out["after"] = {n: record(n, p) for n, p in params.items()}
    return out


def with_adapter(unet, names):
    """Adds factors beside layers; returns them by name."""
    unet.requires_grad_(False)
    factors = {}
    for original, name, shape in names:
        if not name.endswith(".weight") or len(shape) < 2 or "attentions." not in name:
            continue
        layer, stem = unet.get_submodule(name[:-7]), f"adapter.{original[:-7]}"
        ends = [1] * (len(shape) - 2)
        pair = {f"{stem}.down": [RANK, *shape[1:]], f"{stem}.up": [shape[0], RANK, *ends]}
        down, up = (torch.nn.Parameter(torch.from_numpy(hashed_parameter(n, s)).double())
                    for n, s in pair.items())
        factors.update(zip(pair, (down, up)))

        def hook(_, inputs, output, down=down, up=up):
            x = inputs[0]
            if down.dim() == 4:
                y = torch.nn.functional.conv2d(torch.nn.functional.conv2d(x, down), up)
            else:
                y = x @ down.T @ up.T
            return output + ALPHA / RANK * y

        layer.register_forward_hook(hook)
    return factors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    inputs = {"images": image("input.images"), "noise": image("input.noise")}
    c, _, _ = network()
    inputs["text"] = torch.from_numpy(
        hashed_input("input.text", [BATCH, TOKENS, c["context"]])).double()
    cases = {}
    for name, case in CASES.items():
        _, unet, names = network()
        originals = {diffusers_name: original for original, diffusers_name, _ in names}
        params = {originals[n]: p for n, p in unet.named_parameters()}
        cases[name] = {**case, "whole": trained(lambda u=unet, k=case: loss_of(u, k, inputs),
                                                params)}
        _, unet, names = network()
        factors = with_adapter(unet, names)
        cases[name]["adapter"] = trained(lambda u=unet, k=case: loss_of(u, k, inputs), factors)
    write(out / "finetune.json", {
        "generator": "tools/golden/finetune_golden.py",
        "versions": {"torch": torch.__version__, "diffusers": diffusers.__version__,
                     "python": platform.python_version()},
        "config": c, "shape": [BATCH, HEIGHT, WIDTH, 4], "tokens": TOKENS,
        "timesteps": TIMESTEPS, "rank": RANK, "alpha": ALPHA,
        "adamw": {"lr": ADAMW["lr"], "eps": ADAMW["eps"], "beta1": 0.9, "beta2": 0.999,
                  "weight_decay": ADAMW["weight_decay"]},
        "cases": cases})


if __name__ == "__main__":
    main()
