"""What every function computes, in plain torch: the implementation for tensors that are not on a
GPU, and the oracle of the tests. Values between operations are f32, or f64 for f64 operands."""

import math

import torch
import torch.nn.functional as F


DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}  # by ebb's names


def wide(x):
    return x if x.dtype == torch.float64 else x.float()


def _rounded(x, dtype):
    return wide(x.to(dtype)) if x.dtype != torch.float64 else x


def _dtype_named(name, default):
    return DTYPES[name] if name else default


def _along(m, x):
    """A modulation [C], [B,C] or [B|1,...,C] against x [B,...,C]."""
    if m.dim() == 2 and x.dim() > 2:
        return m.reshape(m.shape[0], *[1] * (x.dim() - 2), m.shape[1])
    return m


def _norm(x, weight, bias, scale, shift, kind, eps, offset, rounding, dtype):
    once = rounding == "once"
    y = wide(x)
    if kind == "layer":
        y = y - y.mean(-1, keepdim=True)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    stage = x.dtype
    if weight is not None and rounding == "diffusers":
        stage = weight.dtype
    promote = torch.promote_types

    def step(value):
        return value if once else _rounded(value, stage)

    y = step(y)
    if weight is not None:
        stage = promote(stage, weight.dtype)
        y = step(y * (offset + wide(weight)))
    if bias is not None:
        y = step(y + wide(bias))
    for m in (scale, shift):
        stage = stage if m is None else promote(stage, m.dtype)
    if scale is not None:
        factor = 1 + wide(_along(scale, x))
        y = step(y * (factor if once else _rounded(factor, scale.dtype)))
    if shift is not None:
        y = step(y + wide(_along(shift, x)))
    return y.to(_dtype_named(dtype, x.dtype if once else stage))


def rms_norm(x, weight, bias, eps, offset, rounding, dtype):
    return _norm(x, weight, bias, None, None, "rms", eps, offset, rounding, dtype)


def layer_norm(x, weight, bias, eps, dtype):
    return _norm(x, weight, bias, None, None, "layer", eps, 0.0, "once", dtype)


def ada_norm(x, scale, shift, weight, bias, kind, eps, rounding, dtype):
    return _norm(x, weight, bias, scale, shift, kind, eps, 0.0, rounding, dtype)


def add_norm(x, add, gate, scale, shift, weight, bias, kind, eps, offset, rounding, dtype):
    branch = wide(add)
    if gate is not None:
        branch = branch * wide(_along(gate, x))
        if rounding != "once":
            branch = _rounded(branch, torch.promote_types(add.dtype, gate.dtype))
    total = (wide(x) + branch).to(x.dtype)
    return _norm(total, weight, bias, scale, shift, kind, eps, offset, rounding, dtype), total


def softmax(x):
    return torch.softmax(wide(x), -1).to(x.dtype)


def activation(name, x):
    return {
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
        "gelu_quick": lambda v: v * torch.sigmoid(1.702 * v),
        "relu": F.relu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "none": lambda v: v,
    }[name](x)


def group_norm(x, weight, bias, groups, eps, act):
    channels_first = wide(x).movedim(-1, 1)
    y = F.group_norm(
        channels_first,
        groups,
        None if weight is None else wide(weight),
        None if bias is None else wide(bias),
        eps,
    )
    return activation(act, _rounded(y.movedim(1, -1), x.dtype)).to(x.dtype).contiguous()


def _table(t, x, style):
    """cos or sin as [B|1,S,1..,D], a number an element."""
    if t.dim() == 2:
        t = t[None]
    t = wide(t.reshape(t.shape[0], t.shape[1], *[1] * (x.dim() - 3), t.shape[-1]))
    if t.shape[-1] == x.shape[-1]:
        return t
    rest = x.shape[-1] - 2 * t.shape[-1]
    t = torch.cat([t, t], -1) if style == "half" else t.repeat_interleave(2, -1)
    return t if rest == 0 else F.pad(t, (0, rest), value=math.nan)


def rope(x, cos, sin, style):
    c, s = _table(cos, x, style), _table(sin, x, style)
    c, s = torch.nan_to_num(c, nan=1.0), torch.nan_to_num(s, nan=0.0)
    y = wide(x)
    pairs = x.shape[-1] // 2 if cos.shape[-1] == x.shape[-1] else cos.shape[-1]
    turned, rest = y[..., : 2 * pairs], y[..., 2 * pairs :]
    if style == "half":
        a, b = turned.chunk(2, -1)
        partner = torch.cat([-b, a], -1)
    else:
        a, b = turned.unflatten(-1, (pairs, 2)).unbind(-1)
        partner = torch.stack([-b, a], -1).flatten(-2)
    return (y * c + torch.cat([partner, rest], -1) * s).to(x.dtype)


def qk_rope(q, k, cos, sin, style):
    return rope(q, cos, sin, style), rope(k, cos, sin, style)


def qk_norm_rope(q, k, weight_q, weight_k, cos, sin, eps, style, across_heads, rounding):
    def one(x, weight):
        y = x.flatten(2) if across_heads else x
        y = rms_norm(y, weight, None, eps, 0.0, rounding, "").reshape(x.shape)
        return y if cos is None else rope(y, cos, sin, style)

    return one(q, weight_q), one(k, weight_k)


def gated(x, other, act, gate):
    first, second = x.chunk(2, -1) if other is None else (x, other)
    if gate == "first":
        first, second = second, first
    return (wide(first) * activation(act, wide(second))).to(x.dtype)


def _linear(x, weight, bias):
    return F.linear(wide(x), wide(weight), None if bias is None else wide(bias))


def linear_gated(x, weight, bias, act, gate):
    z = _rounded(_linear(x, weight, bias), x.dtype)
    return gated(z, None, act, gate).to(x.dtype)


def linear_act(x, weight, bias, act):
    return activation(act, _rounded(_linear(x, weight, bias), x.dtype)).to(x.dtype)


def attention(q, k, v, bias, scale, causal):
    group = q.shape[2] // k.shape[2]
    q_, k_, v_ = (wide(t).transpose(1, 2) for t in (q, k, v))
    k_, v_ = k_.repeat_interleave(group, 1), v_.repeat_interleave(group, 1)
    scores = q_ @ k_.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if bias is not None:
        scores = scores + wide(bias)
    if causal:
        rows, columns = scores.shape[-2:]
        mask = torch.ones(rows, columns, dtype=torch.bool, device=q.device)
        scores = scores.masked_fill(~mask.tril(columns - rows), -math.inf)
    lse = torch.logsumexp(scores, -1)
    seen = torch.isfinite(lse)[..., None]
    p = torch.where(seen, torch.exp(scores - torch.where(seen, lse[..., None], 0)), 0)
    return (p @ v_).transpose(1, 2).to(q.dtype).contiguous(), torch.nan_to_num(lse, neginf=0.0)


def adamw(p, m, v, grad, numbers, beta1, beta2, eps, weight_decay):
    lr, c1, c2, clip = numbers.tolist()
    if not clip > 0:
        return
    g = wide(grad) * clip
    m1 = beta1 * wide(m) + (1 - beta1) * g
    v1 = beta2 * wide(v) + (1 - beta2) * g * g
    p.copy_(wide(p) * (1 - lr * weight_decay) - lr * (m1 / c1) / ((v1 / c2).sqrt() + eps))
    m.copy_(m1)
    v.copy_(v1)


_FUNCTIONS = {
    "exp": torch.exp,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "floor": torch.floor,
    "abs": torch.abs,
}


def map(inputs, formula, names, dtype):
    """Only texts that ebb's own parser takes come here."""
    from . import formula as formulas

    widest = inputs[0].dtype
    for x in inputs:
        widest = torch.promote_types(widest, x.dtype)
    values = dict(zip(names.split(","), (wide(x) for x in inputs)))
    return formulas.evaluate(formula, values).to(_dtype_named(dtype, widest))
