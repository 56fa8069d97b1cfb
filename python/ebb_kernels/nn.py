"""Modules with ebb's functions, with the parameters of torch's own where there are such."""

import torch
from torch import nn

from . import ops


def _parameter(present, fill, width, options):
    return nn.Parameter(torch.full((width,), fill, **options)) if present else None


class RMSNorm(nn.Module):
    """rms_norm() over the last dim, with the state of torch.nn.RMSNorm(dim)."""

    def __init__(
        self, dim, eps=1e-6, elementwise_affine=True, *, offset=0.0, rounding="once", **options
    ):
        super().__init__()
        self.eps, self.offset, self.rounding = eps, offset, rounding
        self.weight = _parameter(elementwise_affine, 1.0 - offset, dim, options)

    def forward(self, x):
        return ops.rms_norm(
            x, self.weight, eps=self.eps, offset=self.offset, rounding=self.rounding
        )


class LayerNorm(nn.Module):
    """layer_norm() over the last dim, with the state of torch.nn.LayerNorm(dim)."""

    def __init__(self, dim, eps=1e-5, elementwise_affine=True, bias=True, **options):
        super().__init__()
        self.eps = eps
        self.weight = _parameter(elementwise_affine, 1.0, dim, options)
        self.bias = _parameter(elementwise_affine and bias, 0.0, dim, options)

    def forward(self, x):
        return ops.layer_norm(x, self.weight, self.bias, eps=self.eps)


class AdaNorm(nn.Module):
    """The start of a diffusion transformer's half block: a residual branch, gated, and the norm of
    the sum, modulated. Without parameters: the modulation comes from the timestep."""

    def __init__(self, kind="layer", eps=1e-6, rounding="once"):
        super().__init__()
        self.kind, self.eps, self.rounding = kind, eps, rounding

    def forward(self, x, scale=None, shift=None, branch=None, gate=None):
        """norm(x) * (1 + scale) + shift. With a branch (y, sum), of sum = x + gate * branch."""
        rules = dict(kind=self.kind, eps=self.eps, rounding=self.rounding)
        if branch is None:
            return ops.ada_norm(x, scale, shift, **rules)
        return ops.add_norm(x, branch, gate, scale, shift, **rules)


class GatedLinear(nn.Linear):
    """linear_gated() from `inputs` to `outputs` columns: GEGLU (act "gelu"), SwiGLU ("silu"). The
    weight is [2 outputs, inputs], which of its halves is the gate says `gate`."""

    def __init__(self, inputs, outputs, bias=True, *, act="gelu", gate="second", **options):
        super().__init__(inputs, 2 * outputs, bias, **options)
        self.act, self.gate = act, gate

    def forward(self, x):
        return ops.linear_gated(x, self.weight, self.bias, act=self.act, gate=self.gate)
