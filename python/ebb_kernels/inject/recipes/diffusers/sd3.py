"""Stable Diffusion 3 and 3.5 (Stability AI): blocks of two streams without rotation; the image's has
a second attention in some blocks of 3.5, and the last block's text ends there."""

import torch

from .... import ops
from ...attention import attends
from ...guards import bare
from ...norms import added, modulated, residual
from ...recipe import recipe
from .streams import (
    ZERO,
    ada_rows,
    image_projections,
    joined,
    projected,
    text_projections,
    zero_norm,
)


def _attended(q, k, v):
    if attends(q, k, v):
        return ops.attention(q, k, v).flatten(2)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2).flatten(2).to(q.dtype)


_NORMS = "diffusers.models.normalization"


@recipe("processors", classes=("diffusers.models.attention_processor:JointAttnProcessor2_0",),
        digests=("d2f65e7da988",), parts=("__call__",))  # fmt: skip
def sd3_attention(
    self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, *args, **kwargs
):
    head_dim = attn.to_k.out_features // attn.heads
    qkv = image_projections(attn, hidden_states, head_dim)
    if encoder_hidden_states is not None:
        qkv = joined(qkv, text_projections(attn, encoder_hidden_states, head_dim))
    out = _attended(*qkv)
    if encoder_hidden_states is None:
        return projected(attn, out)
    tokens = hidden_states.shape[1]
    text = out[:, tokens:]
    return projected(attn, out[:, :tokens]), (
        text if attn.context_pre_only else attn.to_add_out(text)
    )


def _dual_norm(ada, x, emb):
    """As zero_norm(); then what the second attention reads, and its gate."""
    if not bare(ada):
        y, gate, shift_ff, scale_ff, gate_ff, second, gate_second = ada(x, emb=emb)
        rest = (m[:, None] for m in (gate, shift_ff, scale_ff, gate_ff))
        return y, *rest, second, gate_second[:, None]
    shift, scale, *rest, shift_second, scale_second, gate_second = ada_rows(ada, emb, 9)
    second = modulated(ada.norm, x, scale_second, shift_second)
    return modulated(ada.norm, x, scale, shift), *rest, second, gate_second


def _last_text_norm(ada, x, emb):
    if not bare(ada):
        return ada(x, emb)
    scale, shift = ada.linear(ada.silu(emb).to(x.dtype))[:, None].chunk(2, dim=-1)
    return modulated(ada.norm, x, scale, shift)


@recipe("blocks", classes=("diffusers.models.attention:JointTransformerBlock",), digests=("ca6607f6b31b",),
        parts=("forward", *ZERO, f"{_NORMS}:SD35AdaLayerNormZeroX.forward",
               f"{_NORMS}:AdaLayerNormContinuous.forward"))  # fmt: skip
def sd3_block(self, hidden_states, encoder_hidden_states, temb, joint_attention_kwargs=None):
    if self._chunk_size is not None:  # parts of the feed-forward one by one
        return type(self).forward(
            self, hidden_states, encoder_hidden_states, temb, joint_attention_kwargs
        )
    x, c = hidden_states, encoder_hidden_states
    options = joint_attention_kwargs or {}
    norm = _dual_norm if self.use_dual_attention else zero_norm
    y, gate, shift_ff, scale_ff, gate_ff, *dual = norm(self.norm1, x, temb)
    if self.context_pre_only:
        yc = _last_text_norm(self.norm1_context, c, temb)
    else:
        yc, c_gate, c_shift_ff, c_scale_ff, c_gate_ff = zero_norm(self.norm1_context, c, temb)
    branch, c_branch = self.attn(hidden_states=y, encoder_hidden_states=yc, **options)
    if dual:
        x = residual(x, branch, gate)
        second, gate = dual
        branch = self.attn2(hidden_states=second, **options)
    y, x = added(self.norm2, x, branch, gate, scale_ff, shift_ff)
    x = residual(x, self.ff(y), gate_ff)
    if self.context_pre_only:
        return None, x
    yc, c = added(self.norm2_context, c, c_branch, c_gate, c_scale_ff, c_shift_ff)
    return residual(c, self.ff_context(yc), c_gate_ff), x
