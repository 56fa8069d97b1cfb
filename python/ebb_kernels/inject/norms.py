"""Norms of other libraries by ebb's functions, alone and with what stands around them in a block.

Each function has the meaning of the modules' own code and falls back on it wherever ebb's kernels
do not serve the call: hooks on the norm, other dtypes, other devices.
"""

from dataclasses import dataclass

import torch

from .. import ops
from .guards import bare, of_dtype, served
from .recipe import recipe


@dataclass(frozen=True)
class Dialect:
    """How a class of norms computes: where it rounds (see rms_norm()), and how it names things."""

    kind: str = "rms"
    rounding: str = "once"
    offset: float = 0.0
    eps: str = "eps"
    weight: str | None = "weight"  # names of attributes; None: it has none
    bias: str | None = None
    shape: str | None = None  # of the dims that it is over: ebb's are over the last
    one_dtype: bool = False  # weights of another dtype than x's are left to the class


_dialects: dict[type, Dialect] = {}


def norm(name, dialect, **rules):
    """A recipe for norms."""

    def replacement(self, x, *args, **kwargs):
        return forward(self, x, *args, **kwargs)

    replacement.__name__ = name

    def found(cls):
        _dialects[cls] = dialect

    recipe("modules", found=found, **rules)(replacement)


@dataclass
class _Parts:
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    eps: float
    dialect: Dialect

    def rules(self, **more):
        d = self.dialect
        return dict(kind=d.kind, eps=self.eps, rounding=d.rounding, **more)


def _tensor(module, name):
    found = module._parameters.get(name)  # the quick way to it
    return getattr(module, name) if found is None else found


def read(norm, x, *others):
    """The norm's weights as they are now; None where ebb does not serve it for x."""
    dialect = _dialects.get(type(norm))
    if dialect is None:
        return None
    weight = _tensor(norm, dialect.weight) if dialect.weight else None
    bias = _tensor(norm, dialect.bias) if dialect.bias else None
    eps = getattr(norm, dialect.eps)
    if dialect.shape and len(getattr(norm, dialect.shape)) != 1:
        return None
    if eps is None and x.dtype == torch.float32:  # of 16 bits: releases of torch differ
        eps = torch.finfo(x.dtype).eps
    if eps is None or not served(x, weight, bias, *others):
        return None
    if dialect.one_dtype and not of_dtype(x.dtype, weight, bias):
        return None
    return _Parts(weight, bias, eps, dialect)


def forward(self, x, *args, **kwargs):
    """The forward of every norm. Under torch.compile the module's own, which Inductor fuses with
    what stands around it."""
    parts = None
    if not (args or kwargs or torch.compiler.is_compiling()):
        parts = read(self, x)
    if parts is None:
        return type(self).forward(self, x, *args, **kwargs)
    if parts.dialect.kind == "layer":
        return ops.layer_norm(x, parts.weight, parts.bias, eps=parts.eps)
    return ops.rms_norm(
        x,
        parts.weight,
        parts.bias,
        eps=parts.eps,
        offset=parts.dialect.offset,
        rounding=parts.dialect.rounding,
    )


def _modulation_rounding(dialect, wide):
    """A module's modulation is computed in its dtype, operation by operation; wide: in f32."""
    return "once" if wide else ("diffusers" if dialect.rounding == "once" else dialect.rounding)


def _usable(norm, x, scale, shift, *others, wide):
    if norm is None or isinstance(norm, torch.nn.Identity) or not bare(norm):
        return None
    parts = read(norm, x, scale, shift, *others)
    if parts is None or (not wide and not of_dtype(x.dtype, scale, shift, *others)):
        return None
    return parts


def _applied(norm, x, scale, shift, wide):
    """The norm and its modulation by the module and torch."""
    y = x if norm is None else norm(x.float() if wide else x)
    if scale is not None:
        y = y * (1 + scale)
    if shift is not None:
        y = y + shift
    return y.to(x.dtype) if wide else y


def modulated(norm, x, scale=None, shift=None, *, wide=False):
    """norm(x) * (1 + scale) + shift. x [B, ..., C]; scale and shift [B, 1, C] or alike. wide: in
    f32, rounded once to x's dtype, as models do whose modulation is f32."""
    parts = _usable(norm, x, scale, shift, wide=wide)
    if parts is None or parts.dialect.offset:
        return _applied(norm, x, scale, shift, wide)
    rounding = _modulation_rounding(parts.dialect, wide)
    return ops.ada_norm(
        x, scale, shift, parts.weight, parts.bias,
        kind=parts.dialect.kind, eps=parts.eps, rounding=rounding,
    )  # fmt: skip


def residual(x, branch, gate=None, *, wide=False):
    """x + gate * branch. wide: in f32, rounded once to x's dtype. Inductor does as well alone."""
    if gate is not None and not torch.compiler.is_compiling() and served(x, branch, gate):
        if wide or of_dtype(x.dtype, branch, gate):
            return ops.map("x + g * a", x.dtype, x=x, a=branch, g=gate)
    if gate is None:
        return x + branch
    if wide:
        return (x.float() + branch.float() * gate).to(x.dtype)
    return x + branch * gate


def added(norm, x, branch, gate=None, scale=None, shift=None, *, wide=False):
    """(norm(sum) * (1 + scale) + shift, sum) with sum = x + gate * branch."""
    parts = None
    if branch.shape == x.shape:
        parts = _usable(norm, x, scale, shift, branch, gate, wide=wide)
    if parts is None:
        total = residual(x, branch, gate, wide=wide)
        return _applied(norm, total, scale, shift, wide), total
    rounding = parts.dialect.rounding
    if scale is not None or gate is not None:
        rounding = _modulation_rounding(parts.dialect, wide)
    return ops.add_norm(
        x, branch, gate, scale, shift, parts.weight, parts.bias,
        kind=parts.dialect.kind, eps=parts.eps, offset=parts.dialect.offset, rounding=rounding,
    )  # fmt: skip
