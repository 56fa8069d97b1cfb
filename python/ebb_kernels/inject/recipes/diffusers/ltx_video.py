"""LTX-Video (Lightricks): self-attention and feed-forward modulated and gated, cross-attention
neither; norms of queries and keys over all heads, rotation before they are parted."""

from ...attention import queries_and_keys
from ...norms import added, modulated, residual
from ...recipe import recipe
from .streams import dispatched, projected

_MODULE = "diffusers.models.transformers.transformer_ltx"


def _mask(attn, mask, tokens, batch):
    if mask is None:
        return None
    mask = attn.prepare_attention_mask(mask, tokens, batch)
    return mask.view(batch, attn.heads, -1, mask.shape[-1])


@recipe("processors", classes=(f"{_MODULE}:LTXVideoAttnProcessor",), digests=("d84ceed26c63",),
        parts=("__call__", "apply_rotary_emb()"))  # fmt: skip
def ltx_video_attention(
    self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None,
    image_rotary_emb=None,
):  # fmt: skip
    source = hidden_states if encoder_hidden_states is None else encoder_hidden_states
    q, k, v = attn.to_q(hidden_states), attn.to_k(source), attn.to_v(source)
    # Norms and rotation are over all channels: [B, S, C].
    q, k = queries_and_keys(q, k, attn.norm_q, attn.norm_k, image_rotary_emb)
    q, k, v = (t.unflatten(2, (attn.heads, -1)) for t in (q, k, v))
    mask = _mask(attn, attention_mask, source.shape[1], source.shape[0])
    return projected(attn, dispatched(self, q, k, v, mask))


@recipe("blocks", classes=(f"{_MODULE}:LTXVideoTransformerBlock",), digests=("3510c06a1cc9",))
def ltx_video_block(
    self, hidden_states, encoder_hidden_states, temb, image_rotary_emb=None,
    encoder_attention_mask=None,
):  # fmt: skip
    # The modulation is [B, 1, 6, C], or [B, S, 6, C] where tokens have timesteps of their own.
    table = self.scale_shift_table.to(temb.device)
    rows = table + temb.unflatten(2, (len(table), -1))
    shift, scale, gate, shift_ff, scale_ff, gate_ff = rows.unbind(2)

    x = modulated(self.norm1, hidden_states, scale, shift)
    x = self.attn1(x, image_rotary_emb=image_rotary_emb)
    x = residual(hidden_states, x, gate)
    branch = self.attn2(
        x, encoder_hidden_states=encoder_hidden_states, attention_mask=encoder_attention_mask
    )
    y, x = added(self.norm2, x, branch, scale=scale_ff, shift=shift_ff)
    return residual(x, self.ff(y), gate_ff)
