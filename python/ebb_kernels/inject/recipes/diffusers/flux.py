"""FLUX.1 (Black Forest Labs): blocks of two streams, text and image, that attend together, and
blocks of one stream whose attention and feed-forward stand side by side."""

import torch

from ...norms import added, residual
from ...products import activated, activation_of
from ...recipe import recipe
from .streams import ZERO, clipped, joint_attention, projected, zero_norm

_MODULE = "diffusers.models.transformers.transformer_flux"


@recipe("processors", classes=(f"{_MODULE}:FluxAttnProcessor",), digests=("82747c4d2356",),
        parts=("__call__", "_get_projections()", "_get_fused_projections()",
               "diffusers.models.embeddings:apply_rotary_emb"))  # fmt: skip
def flux_attention(
    self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None,
    image_rotary_emb=None,
):  # fmt: skip
    text = encoder_hidden_states if attn.added_kv_proj_dim is not None else None
    text, image = joint_attention(self, attn, hidden_states, text, attention_mask, image_rotary_emb)
    if encoder_hidden_states is None:
        return image
    return projected(attn, image.contiguous()), attn.to_add_out(text.contiguous())


@recipe("blocks", classes=(f"{_MODULE}:FluxTransformerBlock",), digests=("fe6bda431e2c",),
        parts=("forward", *ZERO))  # fmt: skip
def flux_block(
    self, hidden_states, encoder_hidden_states, temb, image_rotary_emb=None,
    joint_attention_kwargs=None,
):  # fmt: skip
    x, c = hidden_states, encoder_hidden_states
    y, gate, shift_ff, scale_ff, gate_ff = zero_norm(self.norm1, x, temb)
    yc, c_gate, c_shift_ff, c_scale_ff, c_gate_ff = zero_norm(self.norm1_context, c, temb)
    # A third result is that of an IP adapter.
    branch, c_branch, *extra = self.attn(
        hidden_states=y, encoder_hidden_states=yc, image_rotary_emb=image_rotary_emb,
        **(joint_attention_kwargs or {}),
    )  # fmt: skip
    y, x = added(self.norm2, x, branch, gate, scale_ff, shift_ff)
    x = residual(x, self.ff(y), gate_ff)
    yc, c = added(self.norm2_context, c, c_branch, c_gate, c_scale_ff, c_shift_ff)
    c = residual(c, self.ff_context(yc), c_gate_ff)
    return clipped(c), x + extra[0] if extra else x


@recipe("blocks", classes=(f"{_MODULE}:FluxSingleTransformerBlock",), digests=("f2b32bfbaf95",),
        parts=("forward", *ZERO))  # fmt: skip
def flux_single_block(
    self, hidden_states, encoder_hidden_states, temb, image_rotary_emb=None,
    joint_attention_kwargs=None,
):  # fmt: skip
    text = encoder_hidden_states.shape[1]
    x = torch.cat([encoder_hidden_states, hidden_states], dim=1)
    y, gate = zero_norm(self.norm, x, temb, rows=3)
    act = activation_of(self.act_mlp)
    ff = activated(y, self.proj_mlp, act) if act else self.act_mlp(self.proj_mlp(y))
    attended = self.attn(
        hidden_states=y, image_rotary_emb=image_rotary_emb, **(joint_attention_kwargs or {})
    )
    x = clipped(residual(x, self.proj_out(torch.cat([attended, ff], dim=2)), gate))
    return x[:, :text], x[:, text:]
