"""FLUX.2 (Black Forest Labs): as FLUX.1, with modulations that all blocks share, SwiGLU, and blocks
of one stream whose attention and feed-forward are one product at each end."""

import torch

from ...attention import queries_and_keys
from ...norms import added, modulated, residual
from ...products import gated, product
from ...recipe import recipe
from .streams import clipped, dispatched, joint_attention, projected

_MODULE = "diffusers.models.transformers.transformer_flux2"
_ROTATION = "diffusers.models.embeddings:apply_rotary_emb"
_SPLIT = f"{_MODULE}:Flux2Modulation.split"


@recipe("modules", classes=(f"{_MODULE}:Flux2SwiGLU",), digests=("ed39b031227b",))
def flux2_swiglu(self, x):
    return product(x, act="silu", gate="first")


@recipe("modules", classes=(f"{_MODULE}:Flux2FeedForward",), digests=("35d9f34eb161",),
        parts=("forward", f"{_MODULE}:Flux2SwiGLU.forward"))  # fmt: skip
def flux2_feed_forward(self, x):
    return self.linear_out(gated(x, self.linear_in, "silu", "first"))


@recipe("processors", classes=(f"{_MODULE}:Flux2AttnProcessor",), digests=("b534e1f002fc",),
        parts=("__call__", "_get_projections()", "_get_fused_projections()", _ROTATION)
        )  # fmt: skip
def flux2_attention(
    self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None,
    image_rotary_emb=None,
):  # fmt: skip
    text = encoder_hidden_states if attn.added_kv_proj_dim is not None else None
    text, image = joint_attention(self, attn, hidden_states, text, attention_mask, image_rotary_emb)
    image = projected(attn, image)
    return image if encoder_hidden_states is None else (image, attn.to_add_out(text))


@recipe("processors", classes=(f"{_MODULE}:Flux2ParallelSelfAttnProcessor",), digests=("351133d6e979",),
        parts=("__call__", _ROTATION))  # fmt: skip
def flux2_parallel_attention(self, attn, hidden_states, attention_mask=None, image_rotary_emb=None):
    both = attn.to_qkv_mlp_proj(hidden_states)
    # By their ratio, which a rank of tensor parallelism has too.
    attended, rest = 3 * attn.inner_dim, attn.mlp_hidden_dim * attn.mlp_mult_factor
    attended = both.shape[-1] * attended // (attended + rest)
    q, k, v = (t.unflatten(-1, (-1, attn.head_dim)) for t in both[..., :attended].chunk(3, dim=-1))
    q, k = queries_and_keys(q, k, attn.norm_q, attn.norm_k, image_rotary_emb)
    out = dispatched(self, q, k, v, attention_mask)
    return attn.to_out(torch.cat([out, attn.mlp_act_fn(both[..., attended:])], dim=-1))


def _rows(modulation, halves):
    """Shift, scale and gate of each half of a block, [B, 1, C]."""
    modulation = modulation[:, None] if modulation.ndim == 2 else modulation
    return modulation.chunk(3 * halves, dim=-1)


@recipe("blocks", classes=(f"{_MODULE}:Flux2TransformerBlock",), digests=("026e6c79a476",),
        parts=("forward", _SPLIT))  # fmt: skip
def flux2_block(
    self, hidden_states, encoder_hidden_states, temb_mod_img, temb_mod_txt,
    image_rotary_emb=None, joint_attention_kwargs=None,
):  # fmt: skip
    x, c = hidden_states, encoder_hidden_states
    shift, scale, gate, shift_ff, scale_ff, gate_ff = _rows(temb_mod_img, 2)
    c_shift, c_scale, c_gate, c_shift_ff, c_scale_ff, c_gate_ff = _rows(temb_mod_txt, 2)
    branch, c_branch = self.attn(
        hidden_states=modulated(self.norm1, x, scale, shift),
        encoder_hidden_states=modulated(self.norm1_context, c, c_scale, c_shift),
        image_rotary_emb=image_rotary_emb, **(joint_attention_kwargs or {}),
    )  # fmt: skip
    y, x = added(self.norm2, x, branch, gate, scale_ff, shift_ff)
    x = residual(x, self.ff(y), gate_ff)
    yc, c = added(self.norm2_context, c, c_branch, c_gate, c_scale_ff, c_shift_ff)
    c = residual(c, self.ff_context(yc), c_gate_ff)
    return clipped(c), x


@recipe("blocks", classes=(f"{_MODULE}:Flux2SingleTransformerBlock",), digests=("25774a9b8ae7",),
        parts=("forward", _SPLIT))  # fmt: skip
def flux2_single_block(
    self, hidden_states, encoder_hidden_states, temb_mod, image_rotary_emb=None,
    joint_attention_kwargs=None, split_hidden_states=False, text_seq_len=None,
):  # fmt: skip
    x = hidden_states
    if encoder_hidden_states is not None:
        text_seq_len = encoder_hidden_states.shape[1]
        x = torch.cat([encoder_hidden_states, x], dim=1)
    shift, scale, gate = _rows(temb_mod, 1)
    y = modulated(self.norm, x, scale, shift)
    branch = self.attn(
        hidden_states=y, image_rotary_emb=image_rotary_emb, **(joint_attention_kwargs or {})
    )
    x = clipped(residual(x, branch, gate))
    return (x[:, :text_seq_len], x[:, text_seq_len:]) if split_hidden_states else x
