"""Golden training steps of a small U-Net of Stable Diffusion 1: losses, gradients, AdamW.

    python tools/golden/finetune_golden.py --out tests/golden

diffusers' network in float64, with torch's autograd and AdamW. Adapters are of every linear layer
and 1x1 convolution of the transformers: the low-rank one by the formula of PEFT,
y = base(x) + alpha / r * up(down(x)), the others by those of LyCORIS. Weights, factors and inputs
are hashed.
"""

import argparse
import platform
from pathlib import Path

import diffusers
import torch
import torch.nn.utils.parametrize

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


def trained(loss, params, rate_of=lambda name: 1.0,
            decay_of=lambda name: ADAMW["weight_decay"]):
    """Gradients of the first step, losses of all, and what params are behind the last."""
    groups = [dict(params=[p], lr=ADAMW["lr"] * rate_of(n), weight_decay=decay_of(n))
              for n, p in params.items()]
    optimiser = torch.optim.AdamW(groups, **ADAMW)
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


def part(n):
    """The largest divisor whose square is at most n."""
    return max(m for m in range(1, n + 1) if n % m == 0 and m * m <= n)


def factor_shapes(kind, shape):
    rows, columns, ends = shape[0], shape[1], [1] * (len(shape) - 2)
    if kind == "lora":
        return {"down": [RANK, *shape[1:]], "up": [rows, RANK, *ends]}
    if kind == "loha":
        return {"w1_a": [rows, RANK], "w1_b": [RANK, columns],
                "w2_a": [rows, RANK], "w2_b": [RANK, columns]}
    one, two = part(rows), part(columns)
    if 2 * RANK >= max(rows // one, columns // two):
        return {"w1": [one, two], "w2": [rows // one, columns // two, *ends]}
    return {"w1": [one, two], "w2_a": [rows // one, RANK], "w2_b": [RANK, columns // two]}


class Change(torch.nn.Module):
    """The weight with its change, by the formulas of LyCORIS (locon has only 1x1 filters here)."""

    def __init__(self, kind, factors):
        super().__init__()
        self.kind, self.factors = kind, factors

    def forward(self, weight):
        f = self.factors
        if self.kind == "loha":
            change = ALPHA / RANK * (f["w1_a"] @ f["w1_b"]) * (f["w2_a"] @ f["w2_b"])
        elif "w2" in f:
            change = torch.kron(f["w1"], f["w2"].flatten(1))
        else:
            change = ALPHA / RANK * torch.kron(f["w1"], f["w2_a"] @ f["w2_b"])
        return weight + change.reshape(weight.shape)


def add_low_rank(layer, down, up):
    def hook(_, inputs, output):
        x = inputs[0]
        if down.dim() == 4:
            y = torch.nn.functional.conv2d(torch.nn.functional.conv2d(x, down), up)
        else:
            y = x @ down.T @ up.T
        return output + ALPHA / RANK * y

    layer.register_forward_hook(hook)


def with_adapter(kind, unet, names):
    """Adds factors to layers; returns them by name."""
    unet.requires_grad_(False)
    out = {}
    for original, name, shape in names:
        if not name.endswith(".weight") or len(shape) < 2 or "attentions." not in name:
            continue
        layer, stem = unet.get_submodule(name[:-7]), f"adapter.{original[:-7]}"
        factors = {}
        for role, size in factor_shapes(kind, shape).items():
            value = torch.from_numpy(hashed_parameter(f"{stem}.{role}", size)).double()
            factors[role] = out[f"{stem}.{role}"] = torch.nn.Parameter(value)
        if kind == "lora":
            add_low_rank(layer, factors["down"], factors["up"])
        else:
            torch.nn.utils.parametrize.register_parametrization(
                layer, "weight", Change(kind, factors))
    return out


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
        for kind in ["lora", "loha", "lokr"] if name == "eps" else ["lora"]:
            _, unet, names = network()
            factors = with_adapter(kind, unet, names)
            cases[name][kind] = trained(lambda u=unet, k=case: loss_of(u, k, inputs), factors)
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
