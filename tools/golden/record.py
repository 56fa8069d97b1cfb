"""Evaluates a network case in float32 and float64 and summarises it for the golden file.

Every stored number is the float64 result rounded to 9 digits; `f64_rel_error` beside it is
||f32 - f64|| / ||f64|| of torch's own float32 run, which is what a float32 engine can be expected
to reach: compare with a tolerance of a small multiple of it (and of a floor near 1e-6).
A tensor whose exact gradient is zero (the key third of a qkv bias, a conv bias in front of a group
of one channel) shows as a huge f64_rel_error: skip it, or compare absolutely.
"""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from hashed_weights import hashed_input, hashed_parameter, projections

ADAMW = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
STEPS = 3


def rounded(x):
    """A float, or a nested list of floats, with 9 significant digits."""
    if isinstance(x, (list, tuple)):
        return [rounded(v) for v in x]
    return float(f"{float(x):.9g}")


def nhwc(x):
    """NCHW torch tensor -> contiguous NHWC; anything else unchanged."""
    return x.permute(0, 2, 3, 1).contiguous() if x.dim() == 4 else x


def rel_error(a, b):
    """||a - b|| / ||b|| in float64 (b is the truth)."""
    a, b = a.detach().double().reshape(-1), b.detach().double().reshape(-1)
    norm = b.norm().item()
    return (a - b).norm().item() / norm if norm > 0 else float((a - b).norm())


def summary(name, exact, single=None, first=4):
    """Shape, l2, first values, four sign projections of `exact` in its flat order."""
    flat = exact.detach().double().reshape(-1).numpy()
    out = {
        "shape": list(exact.shape),
        "l2": rounded(np.linalg.norm(flat)),
        "first": rounded(flat[:first].tolist()),
        "proj": rounded(projections(name, flat)),
    }
    if single is not None:
        out["f64_rel_error"] = float(f"{rel_error(single, exact):.3g}")
    return out


def fill_hashed(module):
    """Fills all parameters, and NCSN++'s Fourier frequencies, by the hashed weight rule."""
    tensors = dict(module.named_parameters())
    tensors |= {n: b for n, b in module.named_buffers() if n.endswith("map_noise.freqs")}

    def fill(name):
        with torch.no_grad():
            tensors[name].copy_(torch.from_numpy(hashed_parameter(name, tensors[name].shape)))

    with ThreadPoolExecutor() as threads:  # billions of numbers in large networks
        list(threads.map(fill, tensors))
    return module


def image(name, shape_nhwc):
    """Hashed NHWC input as an NCHW float32 tensor."""
    return torch.from_numpy(hashed_input(name, shape_nhwc)).permute(0, 3, 1, 2).contiguous()


def image_spec(name, shape_nhwc):
    return {"hash": name, "shape": list(shape_nhwc), "layout": "NHWC", "scale": "sqrt(3)"}


def run_steps(module, call, inputs, target):
    """One forward and backward, then AdamW steps on the same inputs.

    call(module, inputs) -> output. Returns output, dL/dx, gradients, losses and final - initial.
    """
    start = {n: p.detach().clone() for n, p in module.named_parameters()}
    optimiser = torch.optim.AdamW(module.parameters(), **ADAMW)
    result = {"losses": []}
    for step in range(STEPS):
        x = inputs["x"].clone().requires_grad_(True)
        out = call(module, {**inputs, "x": x})
        loss = ((out - target) ** 2).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if step == 0:
            result["output"], result["dx"] = out.detach(), x.grad
            result["grads"] = {n: p.grad.clone() for n, p in module.named_parameters()}
        result["losses"].append(loss.item())
        optimiser.step()
    result["loss_after"] = ((call(module, inputs) - target) ** 2).mean().item()
    result["delta"] = {n: p.detach() - start[n] for n, p in module.named_parameters()}
    return result


def in_low(module, call, inputs, dtype=torch.bfloat16):
    """The output under PyTorch's mixed precision."""
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        return call(module, inputs).float()


def in_float64(inputs):
    return {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}


def record_case(case, module, call, exact_mode):
    """The golden object of one network case; `exact_mode` is the context of the float64 run."""
    fill_hashed(module)
    inputs, specs = case["make_inputs"]()
    out_shape = case["output_shape"]
    target = image("input.target", out_shape)
    specs["target"] = image_spec("input.target", out_shape)
    module.train()
    exact_module = copy.deepcopy(module).double()
    low = in_low(copy.deepcopy(module), call, inputs)
    single = run_steps(module, call, inputs, target)
    with exact_mode():
        exact = run_steps(exact_module, call, in_float64(inputs), target.double())

    def table(key):
        return {n: summary(n, exact[key][n], single[key][n]) for n in exact[key]}

    out = summary("output", nhwc(exact["output"]), nhwc(single["output"]), first=64)
    assert out["shape"] == list(out_shape), (case["name"], out["shape"])
    loss_error = max(abs(a / b - 1) for a, b in zip(single["losses"], exact["losses"]))
    return {
        "case": case["name"],
        "model": case["model"],
        "config": case["config"],
        "parameters": sum(p.numel() for p in module.parameters()),
        "inputs": specs,
        "output": {**out, "layout": "NHWC",
                   "bf16_rel_error": float(f"{rel_error(low, exact['output']):.3g}")},
        "loss": {
            "formula": "mean((output - target)^2)",
            "value": rounded(exact["losses"][0]),
            "f64_rel_error": float(f"{abs(single['losses'][0] / exact['losses'][0] - 1):.3g}"),
        },
        "input_gradient": {
            **summary("input.x", nhwc(exact["dx"]), nhwc(single["dx"])), "layout": "NHWC"
        },
        "gradients": table("grads"),
        "adamw": {
            "lr": ADAMW["lr"], "beta1": 0.9, "beta2": 0.999, "eps": ADAMW["eps"],
            "weight_decay": ADAMW["weight_decay"], "steps": STEPS,
            "losses": rounded(exact["losses"]),
            "loss_after": rounded(exact["loss_after"]),
            "f64_rel_error": float(f"{loss_error:.3g}"),
            "delta": table("delta"),
        },
    }
