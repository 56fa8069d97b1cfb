"""Parts of blocks of text and image that attend together (Esser et al. 2024)."""

import torch
from diffusers.models.attention_dispatch import (
    AttentionBackendName,
    _AttentionBackendRegistry,
    dispatch_attention_fn,
)

from .... import ops
from ...attention import attends, queries_and_keys
from ...guards import bare
from ...norms import modulated

_OWN = object()

# What the functions here stand for, for the digests of recipes that use them.
ZERO = tuple(
    f"diffusers.models.normalization:{name}.forward"
    for name in ("AdaLayerNormZero", "AdaLayerNormZeroSingle")
)


def ada_rows(ada, emb, n):
    """The n modulations [B, 1, C] that a layer of adaLN computes from emb [B, C]."""
    return ada.linear(ada.silu(emb))[:, None].chunk(n, -1)


def zero_norm(ada, x, emb, rows=6):
    """x after an adaLN-Zero layer, and its modulations behind shift and scale, [B, 1, C] each."""
    if not bare(ada) or getattr(ada, "emb", None) is not None:
        y, *rest = ada(x, emb=emb)
        return y, *(m[:, None] for m in rest)
    shift, scale, *rest = ada_rows(ada, emb, rows)
    return modulated(ada.norm, x, scale, shift), *rest


def projections(attn, x, fused, names, head_dim):
    """Queries, keys and values [B, S, heads, D] of one stream."""
    if getattr(attn, "fused_projections", False):
        parts = getattr(attn, fused)(x).chunk(3, -1)
    else:
        parts = (getattr(attn, name)(x) for name in names)
    return [t.unflatten(-1, (-1, head_dim)) for t in parts]


def image_projections(attn, x, head_dim, rotary=None):
    q, k, v = projections(attn, x, "to_qkv", ("to_q", "to_k", "to_v"), head_dim)
    return *queries_and_keys(q, k, attn.norm_q, attn.norm_k, rotary), v


def text_projections(attn, x, head_dim, rotary=None):
    names = ("add_q_proj", "add_k_proj", "add_v_proj")
    q, k, v = projections(attn, x, "to_added_qkv", names, head_dim)
    return *queries_and_keys(q, k, attn.norm_added_q, attn.norm_added_k, rotary), v


def joined(first, second):
    """Two streams' queries, keys and values, one after the other."""
    return [torch.cat(pair, dim=1) for pair in zip(first, second)]


def joint_attention(self, attn, image, text, mask, rotary):
    """(text, image) before their last linear layers, where text stands before image and the rotary
    tables have a row for each token of both. text None: of no tokens."""
    tokens = 0 if text is None else text.shape[1]
    of_text = of_image = rotary
    if rotary is not None:
        of_text, of_image = (tuple(t[:tokens] for t in rotary), tuple(t[tokens:] for t in rotary))
    qkv = image_projections(attn, image, attn.head_dim, of_image)
    if text is not None:
        qkv = joined(text_projections(attn, text, attn.head_dim, of_text), qkv)
    out = dispatched(self, *qkv, mask)
    return out[:, :tokens], out[:, tokens:]


def _is_free(self, parallel):
    """Whether no one has chosen how a processor attends: neither by its settings nor by diffusers'
    active backend."""
    if self._attention_backend is not None or parallel is not None:
        return False
    return _AttentionBackendRegistry.get_active_backend()[0] == AttentionBackendName.NATIVE


def dispatched(self, q, k, v, mask=None, *, parallel=_OWN):
    """Attention of [B, S, heads, D]: [B, S, C]. By the backend and the context parallelism of a
    processor's settings, or those given; by ebb where it serves and there are none."""
    parallel = self._parallel_config if parallel is _OWN else parallel
    if attends(q, k, v, mask) and _is_free(self, parallel):
        return ops.attention(q, k, v).flatten(2, 3)
    out = dispatch_attention_fn(
        q, k, v, attn_mask=mask, dropout_p=0.0, is_causal=False,
        backend=self._attention_backend, parallel_config=parallel,
    )  # fmt: skip
    return out.flatten(2, 3).to(q.dtype)


def projected(attn, x):
    """The last linear layer of attention, and its dropout where it has one."""
    for layer in attn.to_out:
        x = layer(x)
    return x


def clipped(x):
    """Within f16, whose sums of residuals overflow otherwise."""
    return x.clip(-65504, 65504) if x.dtype == torch.float16 else x
