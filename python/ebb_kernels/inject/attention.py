"""What the attention of several models shares: norms of queries and keys, their rotation, and when
ebb's attention is as good as the libraries' own."""

import torch

from .. import ops, reference
from .guards import bare, of_dtype, served
from .norms import read


DEVICES = {"cuda"}  # attention in plain torch, which ebb has on the CPU, is SDPA's to do
_WIDTHS = (64, 128)  # of heads


def attends(q, k, v, mask=None) -> bool:
    """Whether q, k and v [..., D] are ebb's to attend with: of 16 bits on a GPU, without a mask."""
    if mask is not None or q.device.type not in DEVICES or not served(q, k, v):
        return False
    if q.is_cuda and q.dtype == torch.float32:
        return False
    return of_dtype(q.dtype, k, v) and q.shape[-1] == k.shape[-1] == v.shape[-1] in _WIDTHS


def _read_rms(norm, x, width):
    """A norm of x that qk_norm_rope() has: without offset or bias, and with a weight of the width,
    which a slice of the heads, as tensor parallelism has it, does not have."""
    parts = None if norm is None or not bare(norm) else read(norm, x)
    if parts is None or parts.dialect.kind != "rms" or parts.dialect.offset:
        return None
    if parts.bias is not None or not of_dtype(x.dtype, parts.weight):
        return None
    return parts if parts.weight is None or parts.weight.shape == (width,) else None


def _normed(norm, x, across_heads):
    if norm is None:
        return x
    return norm(x.flatten(2)).view(x.shape) if across_heads else norm(x)


def tables(rotary, device):
    """Cosines and sines of a pair of them or of complex numbers, on a device; (None, None) of
    none."""
    if rotary is None:
        return None, None
    cos, sin = rotary if isinstance(rotary, tuple) else (rotary.real, rotary.imag)
    return cos.to(device), sin.to(device)


def rotated(q, k, cos, sin, style="interleaved"):
    """q and k [B, S, heads, D] or [B, S, C], rotated in f32."""
    rope = ops.qk_rope if served(q, k, cos, sin) else reference.qk_rope
    return rope(q, k, cos, sin, style=style)


def queries_and_keys(q, k, norm_q, norm_k, rotary=None, *, style="interleaved", across_heads=False):
    """q and k [B, S, heads, D] after their norms and rotation. across_heads: the norms are over all
    heads together."""
    cos, sin = tables(rotary, q.device)
    width = q.shape[-1] * q.shape[-2] if across_heads else q.shape[-1]
    a, b = _read_rms(norm_q, q, width), _read_rms(norm_k, k, width)
    if a and b and (a.eps, a.dialect) == (b.eps, b.dialect) and served(q, k, cos, sin):
        return ops.qk_norm_rope(
            q, k, a.weight, b.weight, cos, sin,
            eps=a.eps, style=style, across_heads=across_heads, rounding=a.dialect.rounding,
        )  # fmt: skip
    q, k = _normed(norm_q, q, across_heads), _normed(norm_k, k, across_heads)
    if cos is None:
        return q, k
    return rotated(q, k, cos, sin, style)
