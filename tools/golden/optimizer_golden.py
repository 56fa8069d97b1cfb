"""Golden steps of optimisers: tests/golden/optimizers.json.

    python tools/golden/optimizer_golden.py --out tests/golden

Four steps on four hashed weights and gradients, in float64: Adafactor of transformers, Prodigy of
prodigyopt, and AdamW by torch's formula with moments in bitsandbytes' dynamic maps, in blocks of
256, each number the nearest entry. A filter [O,KH,KW,I] is a matrix of O rows. Gradients are cubes
of hashed numbers, so that a block has numbers of several decades. Where `clip` is given, all of
them together are brought down to that norm first.

`f64_rel_error` beside a number is how far the same program is from it in float32: what arithmetic
of float32 loses, of weights that move by little more than their last digits above all.
"""

import argparse
import contextlib
import io
import math
import platform
from importlib.metadata import version
from pathlib import Path

import bitsandbytes
import numpy as np
import prodigyopt
import torch
import transformers
from bitsandbytes.functional import create_dynamic_map
from transformers.optimization import Adafactor

from generate import write
from hashed_weights import hashed_input
from record import rounded, summary

STEPS, DECAY, BLOCK, SMALL = 4, 0.1, 256, 4096
SHAPES = {"matrix": [48, 96], "odd": [67, 65], "vector": [37], "filter": [8, 3, 3, 16]}
BETAS, EPS = (0.9, 0.99), 1e-8
MAPS = {"m": create_dynamic_map(True).double(), "v": create_dynamic_map(False).double()}
CASES = {
    "adafactor": dict(optimizer="adafactor", lr=1e-3, options={}),
    "adafactor_scaled": dict(optimizer="adafactor", lr=1e-2,
                             options=dict(scale_parameter=True, clip_threshold=0.5)),
    "adafactor_relative": dict(optimizer="adafactor", lr=1.0,
                               options=dict(relative_step=True, scale_parameter=True)),
    "adafactor_warmup": dict(optimizer="adafactor", lr=1.0,
                             options=dict(relative_step=True, scale_parameter=True,
                                          warmup_init=True)),
    "adafactor_clipped": dict(optimizer="adafactor", lr=1e-3, options={}, clip=0.2),
    "adamw8bit": dict(optimizer="adamw8bit", lr=1e-3, options={}),
    "adamw8bit_clipped": dict(optimizer="adamw8bit", lr=1e-3, options={}, clip=0.2),
    "prodigy": dict(optimizer="prodigy", lr=1.0, options={}),
    "prodigy_all": dict(optimizer="prodigy", lr=1.0,
                        options=dict(d0=1e-4, d_coef=8.0, use_bias_correction=True,
                                     safeguard_warmup=True, growth_rate=1.1)),
    "prodigy_coupled": dict(optimizer="prodigy", lr=0.5,
                            options=dict(d0=1e-5, d_coef=5.0, decouple=False)),
    "prodigy_clipped": dict(optimizer="prodigy", lr=1.0, options=dict(d0=1e-4), clip=0.2),
}


def weight(name, dtype=torch.float64):
    return (0.1 * torch.from_numpy(hashed_input(f"weight.{name}", SHAPES[name])).double()).to(dtype)


def gradient(name, step):
    """Mostly the same in every step, so that Prodigy has a way to go."""
    parts = [torch.from_numpy(hashed_input(f"gradient.{name}.{k}", SHAPES[name])).double()
             for k in ("all", step)]
    return 0.01 * (0.9 * parts[0] + 0.3 * parts[1])**3


def gradients(case, step, dtype):
    """By weight, clipped as the case says."""
    out = {n: gradient(n, step) for n in SHAPES}
    norm = math.sqrt(sum(g.square().sum().item() for g in out.values()))
    scale = min(1, case["clip"] / (norm + 1e-6)) if "clip" in case else 1
    assert "clip" not in case or scale < 0.9
    return {n: (scale * g).to(dtype) for n, g in out.items()}


def matrix(tensor):
    return tensor.reshape(tensor.shape[0], -1) if tensor.dim() > 2 else tensor


def run_torch(case, dtype, make):
    """Weights, states by prefix and weight, and the optimiser behind the steps."""
    params = {n: torch.nn.Parameter(matrix(weight(n, dtype))) for n in SHAPES}
    with contextlib.redirect_stdout(io.StringIO()):  # it tells which decay it uses
        optimiser = make(list(params.values()))
    for step in range(STEPS):
        given = gradients(case, step, dtype)
        for n, p in params.items():
            p.grad = matrix(given[n]).clone()
        optimiser.step()
    return params, {n: optimiser.state[p] for n, p in params.items()}, optimiser


def adafactor(case, dtype):
    options = dict(scale_parameter=False, relative_step=False) | case["options"]
    relative = options["relative_step"]
    params, states, _ = run_torch(case, dtype, lambda p: Adafactor(
        p, lr=None if relative else case["lr"], weight_decay=DECAY, **options))
    names = {"exp_avg_sq": "v.", "exp_avg_sq_row": "v_row.", "exp_avg_sq_col": "v_col."}
    kept = {names[k] + n: s[k] for n, s in states.items() for k in names if k in s}
    return params, kept, {}


def prodigy(case, dtype):
    options = dict(case["options"])
    if "growth_rate" not in options:
        options["growth_rate"] = math.inf
    params, states, optimiser = run_torch(case, dtype, lambda p: prodigyopt.Prodigy(
        p, lr=case["lr"], betas=BETAS, eps=EPS, weight_decay=DECAY, **options))
    names = {"exp_avg": "m.", "exp_avg_sq": "v.", "s": "s.", "p0": "p0."}
    kept = {names[k] + n: s[k] for n, s in states.items() for k in names}
    group = optimiser.param_groups[0]
    return params, kept, {"prodigy.d": group["d"] / group["d0"],
                          "prodigy.d_max": group["d_max"] / group["d0"],
                          "prodigy.numerator": float(group["d_numerator"])}


def quantised(tensor, kind):
    """What is left of a moment in codes of 8 bits."""
    flat, entries = tensor.reshape(-1), MAPS[kind].to(tensor.dtype)
    blocks = torch.nn.functional.pad(flat, (0, -flat.numel() % BLOCK)).reshape(-1, BLOCK)
    largest = blocks.abs().amax(1, keepdim=True)
    codes = torch.bucketize(blocks / largest, (entries[1:] + entries[:-1]) / 2)
    return (entries[codes] * largest).reshape(-1)[:flat.numel()].reshape(tensor.shape)


def adamw8bit(case, dtype):
    params, kept = {n: weight(n, dtype) for n in SHAPES}, {}
    for n, p in params.items():
        m, v = torch.zeros_like(p), torch.zeros_like(p)
        for step in range(STEPS):
            g, t = gradients(case, step, dtype)[n], step + 1
            m = BETAS[0] * m + (1 - BETAS[0]) * g
            v = BETAS[1] * v + (1 - BETAS[1]) * g * g
            p *= 1 - case["lr"] * DECAY
            p -= case["lr"] * (m / (1 - BETAS[0]**t)) / ((v / (1 - BETAS[1]**t)).sqrt() + EPS)
            if p.numel() >= SMALL:
                m, v = quantised(m, "m"), quantised(v, "v")
        eight = "8" if p.numel() >= SMALL else ""
        kept |= {f"m{eight}.{n}": m, f"v{eight}.{n}": v}
    return params, kept, {}


def recorded(case, run):
    params, kept, numbers = run(case, torch.float64)
    params32, kept32, numbers32 = run(case, torch.float32)
    options = ",".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}"
                       for k, v in case["options"].items())

    def change(of, dtype, n):
        return of[n].detach().reshape(-1) - weight(n, dtype).reshape(-1)
    return {
        "optimizer": case["optimizer"], "lr": case["lr"], "options": options,
        "clip": case.get("clip", 0),
        "change": {n: summary(n, change(params, torch.float64, n),
                              change(params32, torch.float32, n)) for n in params},
        "states": {n: summary(n, s.reshape(-1), kept32[n]) for n, s in kept.items()},
        "run": {n: {"value": rounded(v), "f64_rel_error": float(f"{abs(numbers32[n] / v - 1):.3g}")}
                for n, v in numbers.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    run = {"adafactor": adafactor, "prodigy": prodigy, "adamw8bit": adamw8bit}
    out = {
        "generator": "tools/golden/optimizer_golden.py",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__,
                     "prodigyopt": version("prodigyopt"), "bitsandbytes": bitsandbytes.__version__,
                     "numpy": np.__version__, "python": platform.python_version()},
        "shapes": SHAPES, "steps": STEPS,
        "settings": {"beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS, "weight_decay": DECAY},
        "maps": {k: rounded(m.tolist()) for k, m in MAPS.items()},
        "cases": {},
    }
    for name, case in CASES.items():
        out["cases"][name] = recorded(case, run[case["optimizer"]])
    write(args.out / "optimizers.json", out)


if __name__ == "__main__":
    main()
