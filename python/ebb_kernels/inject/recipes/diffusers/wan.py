"""Wan 2.1 and 2.2 (Alibaba): modulation in f32 beside 16-bit activations, norms of queries and keys
over all heads, rotation within heads; text and, for image to video, image tokens are attended to
apart."""

from ...attention import queries_and_keys
from ...norms import added, modulated, residual
from ...recipe import recipe
from .streams import dispatched, projected

_MODULE = "diffusers.models.transformers.transformer_wan"
_TEXT_TOKENS = 512  # of the context, the last


def _attend_to_image(self, attn, q, image):
    if attn.fused_projections:
        k, v = attn.to_added_kv(image).chunk(2, dim=-1)
    else:
        k, v = attn.add_k_proj(image), attn.add_v_proj(image)
    k, v = (t.unflatten(2, (attn.heads, -1)) for t in (attn.norm_added_k(k), v))
    return dispatched(self, q, k, v, parallel=None)


def _projections(attn, x, context):
    if not attn.fused_projections:
        source = x if context is None else context
        return attn.to_q(x), attn.to_k(source), attn.to_v(source)
    if not attn.is_cross_attention:
        return attn.to_qkv(x).chunk(3, dim=-1)
    return attn.to_q(x), *attn.to_kv(x if context is None else context).chunk(2, dim=-1)


@recipe("processors", classes=(f"{_MODULE}:WanAttnProcessor",), digests=("088525f30870",),
        parts=("__call__", "_get_qkv_projections()", "_get_added_kv_projections()"))  # fmt: skip
def wan_attention(
    self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None
):
    image = None
    if attn.add_k_proj is not None:
        tokens = encoder_hidden_states.shape[1] - _TEXT_TOKENS
        image = encoder_hidden_states[:, :tokens]
        encoder_hidden_states = encoder_hidden_states[:, tokens:]
    q, k, v = _projections(attn, hidden_states, encoder_hidden_states)
    q, k, v = (t.unflatten(2, (attn.heads, -1)) for t in (q, k, v))
    q, k = queries_and_keys(q, k, attn.norm_q, attn.norm_k, rotary_emb, across_heads=True)
    # Context parallelism is of self-attention.
    parallel = self._parallel_config if encoder_hidden_states is None else None
    out = dispatched(self, q, k, v, attention_mask, parallel=parallel)
    if image is not None:
        out = out + _attend_to_image(self, attn, q, image)
    return projected(attn, out)


@recipe("blocks", classes=(f"{_MODULE}:WanTransformerBlock",), digests=("eafbfd2e6fb4",))
def wan_block(self, hidden_states, encoder_hidden_states, temb, rotary_emb):
    # [B, 1, C] each, or [B, S, C] where tokens have timesteps of their own (Wan 2.2, 5B).
    per_token = temb if temb.ndim == 4 else temb[:, None]
    rows = self.scale_shift_table[:, None] + per_token.float()
    shift, scale, gate, shift_ff, scale_ff, gate_ff = rows.unbind(2)

    y = modulated(self.norm1, hidden_states, scale, shift, wide=True)
    y = self.attn1(y, None, None, rotary_emb)
    y, x = added(self.norm2, hidden_states, y, gate, wide=True)
    y = self.attn2(y, encoder_hidden_states, None, None)
    y, x = added(self.norm3, x, y, None, scale_ff, shift_ff, wide=True)
    return residual(x, self.ffn(y), gate_ff, wide=True)
