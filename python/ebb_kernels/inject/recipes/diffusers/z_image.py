"""Z-Image (Alibaba): one stream, RMS norms before and after attention and feed-forward, scales and
gates without shifts; tables of rotation are complex numbers."""

import torch

from ...attention import queries_and_keys
from ...norms import added, modulated, residual
from ...products import product
from ...recipe import recipe
from .streams import dispatched, projected

_MODULE = "diffusers.models.transformers.transformer_z_image"


@recipe("modules", classes=(f"{_MODULE}:FeedForward",), digests=("67b0f9af93ed",),
        parts=("forward", "_forward_silu_gating"))  # fmt: skip
def z_image_feed_forward(self, x):
    return self.w2(product(self.w1(x), self.w3(x), act="silu", gate="first"))


@recipe("processors", classes=(f"{_MODULE}:ZSingleStreamAttnProcessor",), digests=("2971c654c46a",),
        parts=("__call__",))  # fmt: skip
def z_image_attention(
    self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, freqs_cis=None
):
    q, k, v = (linear(hidden_states) for linear in (attn.to_q, attn.to_k, attn.to_v))
    q, k, v = (t.unflatten(-1, (attn.heads, -1)) for t in (q, k, v))
    q, k = queries_and_keys(q, k, attn.norm_q, attn.norm_k, freqs_cis)
    if attention_mask is not None and attention_mask.ndim == 2:
        attention_mask = attention_mask[:, None, None, :]
    return projected(attn, dispatched(self, q, k, v, attention_mask))


def _rows(self, emb, mask, noisy, clean):
    """Scale and gate of both halves, [B, 1, C] each; with a mask [B, S] of noisy tokens, whose
    modulation differs from that of clean ones, [B, S, C]."""
    if mask is None:
        rows = self.adaLN_modulation(emb)[:, None]
    else:
        noisy, clean = (self.adaLN_modulation(e)[:, None] for e in (noisy, clean))
        rows = torch.where(mask[..., None] == 1, noisy, clean)
    scale, gate, scale_ff, gate_ff = rows.chunk(4, dim=-1)
    return scale, gate.tanh(), scale_ff, gate_ff.tanh()


@recipe("blocks", classes=(f"{_MODULE}:ZImageTransformerBlock",), digests=("82980160a113",),
        parts=("forward", "select_per_token()"))  # fmt: skip
def z_image_block(
    self, x, attn_mask, freqs_cis, adaln_input=None, noise_mask=None, adaln_noisy=None,
    adaln_clean=None,
):  # fmt: skip
    scale = gate = scale_ff = gate_ff = None
    if self.modulation:
        scale, gate, scale_ff, gate_ff = _rows(
            self, adaln_input, noise_mask, adaln_noisy, adaln_clean
        )
    y = modulated(self.attention_norm1, x, scale)
    branch = self.attention(y, attention_mask=attn_mask, freqs_cis=freqs_cis)
    y, x = added(self.ffn_norm1, x, self.attention_norm2(branch), gate, scale_ff)
    return residual(x, self.ffn_norm2(self.feed_forward(y)), gate_ff)
