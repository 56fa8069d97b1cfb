"""LLaMA and the many models that are made as it is: Mistral, Qwen, Gemma and others, by the source
of their parts."""

import sys

from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ...attention import queries_and_keys, rotated
from ...norms import added
from ...products import activation_of, gated, product
from ...recipe import recipe

_ROTATION = ("apply_rotary_pos_emb()", "rotate_half()")


def _known(name):
    def why_not(mlp):
        return None if activation_of(getattr(mlp, name)) else "its activation is not one of ebb's"

    return why_not


@recipe("modules", package="transformers", digests=("f9ffe0c4c05b",), applies=_known("act_fn"))
def llama_mlp(self, x):
    act = activation_of(self.act_fn)
    return self.down_proj(product(self.gate_proj(x), self.up_proj(x), act=act, gate="first"))


# Phi-3, GLM: the gate and its factor are one linear layer.
@recipe(
    "modules", package="transformers", digests=("c60da53f6e91",), applies=_known("activation_fn")
)
def phi3_mlp(self, hidden_states):
    act = activation_of(self.activation_fn)
    return self.down_proj(gated(hidden_states, self.gate_up_proj, act, "first"))


def _projections(self, x):
    """q, k and v [B, S, heads, D]"""
    return (
        p(x).unflatten(-1, (-1, self.head_dim)) for p in (self.q_proj, self.k_proj, self.v_proj)
    )


def _attend(self, q, k, v, mask, past_key_values, kwargs):
    """Attention of q, k and v [B, S, heads, D], by the implementation of the model's choice."""
    shape = q.shape[:2]
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    if past_key_values is not None:
        k, v = past_key_values.update(k, v, self.layer_idx)
    eager = sys.modules[type(self).__module__].eager_attention_forward
    attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager)
    out, weights = attend(
        self, q, k, v, mask,
        dropout=self.attention_dropout if self.training else 0.0, scaling=self.scaling, **kwargs,
    )  # fmt: skip
    return self.o_proj(out.reshape(*shape, -1).contiguous()), weights


def _rotated(self, hidden_states, position_embeddings):
    q, k, v = _projections(self, hidden_states)
    cos, sin = position_embeddings
    return *rotated(q, k, cos, sin, "half"), v


@recipe("processors", package="transformers", parts=("forward", *_ROTATION),
        digests=("24faefb30fce",))  # fmt: skip
def llama_attention(
    self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None,
    **kwargs,
):  # fmt: skip
    qkv = _rotated(self, hidden_states, position_embeddings)
    return _attend(self, *qkv, attention_mask, past_key_values, kwargs)


@recipe("processors", package="transformers", parts=("forward", *_ROTATION),
        digests=("b6c6f4fbfb03",))  # fmt: skip
def qwen2_attention(
    self, hidden_states, position_embeddings, attention_mask, past_key_values=None, **kwargs
):
    qkv = _rotated(self, hidden_states, position_embeddings)
    kwargs["sliding_window"] = self.sliding_window
    return _attend(self, *qkv, attention_mask, past_key_values, kwargs)


@recipe("processors", package="transformers", parts=("forward", *_ROTATION),
        digests=("89f98f9c82b3",))  # fmt: skip
def mistral_attention(
    self, hidden_states, position_embeddings, attention_mask, past_key_values=None, **kwargs
):
    qkv = _rotated(self, hidden_states, position_embeddings)
    kwargs["sliding_window"] = getattr(self.config, "sliding_window", None)
    return _attend(self, *qkv, attention_mask, past_key_values, kwargs)


@recipe("processors", package="transformers", parts=("forward", *_ROTATION),
        digests=("06dca27dd663",))  # fmt: skip
def qwen3_attention(
    self, hidden_states, position_embeddings, attention_mask, past_key_values=None, **kwargs
):
    q, k, v = _projections(self, hidden_states)
    q, k = queries_and_keys(q, k, self.q_norm, self.k_norm, position_embeddings, style="half")
    kwargs["sliding_window"] = self.sliding_window
    return _attend(self, q, k, v, attention_mask, past_key_values, kwargs)


@recipe("blocks", package="transformers", digests=("ac6402c8d33b",))
def llama_block(
    self, hidden_states, attention_mask=None, position_ids=None, past_key_values=None,
    use_cache=False, position_embeddings=None, **kwargs,
):  # fmt: skip
    branch, _ = self.self_attn(
        hidden_states=self.input_layernorm(hidden_states), attention_mask=attention_mask,
        position_ids=position_ids, past_key_values=past_key_values, use_cache=use_cache,
        position_embeddings=position_embeddings, **kwargs,
    )  # fmt: skip
    y, x = added(self.post_attention_layernorm, hidden_states, branch)
    return x + self.mlp(y)
