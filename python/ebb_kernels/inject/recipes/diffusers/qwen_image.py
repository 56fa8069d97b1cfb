"""Qwen-Image (Alibaba): blocks of two streams; tables of rotation are complex numbers, apart for
text and image. With edits the image's tokens have one of two modulations each, by an index."""

import torch

from ...norms import added, modulated, residual
from ...recipe import recipe
from .streams import (
    clipped,
    dispatched,
    image_projections,
    joined,
    projected,
    text_projections,
)

_MODULE = "diffusers.models.transformers.transformer_qwenimage"


def _mask(of_text, image):
    """Text tokens by their mask, image tokens all."""
    if of_text is None:
        return None
    ones = torch.ones(image.shape[:2], dtype=torch.bool, device=image.device)
    return torch.cat([of_text, ones], dim=1)[:, None, None, :]


@recipe("processors", classes=(f"{_MODULE}:QwenDoubleStreamAttnProcessor2_0",), digests=("ae86e53216fb",),
        parts=("__call__", "apply_rotary_emb_qwen()"))  # fmt: skip
def qwen_image_attention(
    self, attn, hidden_states, encoder_hidden_states=None, encoder_hidden_states_mask=None,
    attention_mask=None, image_rotary_emb=None,
):  # fmt: skip
    if encoder_hidden_states is None or attention_mask is not None:
        raise ValueError("qwen_image: attention is of text and image, without a mask of its own")
    of_image, of_text = image_rotary_emb if image_rotary_emb is not None else (None, None)
    head_dim = attn.inner_dim // attn.heads
    text = text_projections(attn, encoder_hidden_states, head_dim, of_text)
    image = image_projections(attn, hidden_states, head_dim, of_image)
    mask = _mask(encoder_hidden_states_mask, hidden_states)
    out = dispatched(self, *joined(text, image), mask)
    tokens = encoder_hidden_states.shape[1]
    image, text = out[:, tokens:].contiguous(), out[:, :tokens].contiguous()
    return projected(attn, image), attn.to_add_out(text)


def _rows(rows, index=None):
    """Shift, scale and gate of both halves of a block, [B, 1, C] each; with an index [B, S] of the
    first or second half of the batch, [B, S, C]."""
    if index is None:
        return rows[:, None].chunk(6, dim=-1)
    first, second = rows[:, None].chunk(2, dim=0)
    return torch.where(index[..., None] == 0, first, second).chunk(6, dim=-1)


@recipe("blocks", classes=(f"{_MODULE}:QwenImageTransformerBlock",), digests=("8ff3bb00d339",),
        parts=("forward", "_modulate"))  # fmt: skip
def qwen_image_block(
    self, hidden_states, encoder_hidden_states, encoder_hidden_states_mask, temb,
    image_rotary_emb=None, joint_attention_kwargs=None, modulate_index=None,
):  # fmt: skip
    x, c = hidden_states, encoder_hidden_states
    shift, scale, gate, shift_ff, scale_ff, gate_ff = _rows(self.img_mod(temb), modulate_index)
    if self.zero_cond_t:
        temb = temb.chunk(2, dim=0)[0]
    c_shift, c_scale, c_gate, c_shift_ff, c_scale_ff, c_gate_ff = _rows(self.txt_mod(temb))

    branch, c_branch = self.attn(
        hidden_states=modulated(self.img_norm1, x, scale, shift),
        encoder_hidden_states=modulated(self.txt_norm1, c, c_scale, c_shift),
        encoder_hidden_states_mask=encoder_hidden_states_mask, image_rotary_emb=image_rotary_emb,
        **(joint_attention_kwargs or {}),
    )  # fmt: skip
    y, x = added(self.img_norm2, x, branch, gate, scale_ff, shift_ff)
    x = residual(x, self.img_mlp(y), gate_ff)
    yc, c = added(self.txt_norm2, c, c_branch, c_gate, c_scale_ff, c_shift_ff)
    c = residual(c, self.txt_mlp(yc), c_gate_ff)
    return clipped(c), clipped(x)
