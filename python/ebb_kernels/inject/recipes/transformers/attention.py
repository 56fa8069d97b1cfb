"""ebb's attention under the name "ebb" in transformers' table of attention functions, with SDPA's
mask under the same name: a name without a mask function gets none."""

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from .... import ops
from ...attention import attends
from ...models import whole_model

NAME = "ebb"


def _is_causal(module, q, k, is_causal):
    """As SDPA's caller has it: a single query sees all keys."""
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    return bool(is_causal) and q.shape[2] > 1


def _serves(q, k, v, mask, dropout, causal, kwargs):
    if dropout or not attends(q, k, v, mask):
        return False
    if any(kwargs.get(name) is not None for name in ("position_bias", "s_aux", "softcap", "cache")):
        return False
    # Masks of SDPA are aligned to the first query, ours to the last.
    return not causal or q.shape[2] == k.shape[2]


def ebb_attention(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **kwargs
):
    """Attention without a mask, causal or not, heads grouped or not; the rest is SDPA's."""
    causal = _is_causal(module, query, key, is_causal)
    if not _serves(query, key, value, attention_mask, dropout, causal, kwargs):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask,
            dropout=dropout, scaling=scaling, is_causal=is_causal, **kwargs,
        )  # fmt: skip
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    return ops.attention(q, k, v, scale=scaling, causal=causal), None


AttentionInterface.register(NAME, ebb_attention)
AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def _configs(root):
    """Configurations of a model of transformers, by the name of the part that has it."""
    found = {}
    for name, module in root.named_modules():
        config = getattr(module, "config", None)
        if hasattr(module, "set_attn_implementation") and id(config) not in found:
            found[id(config)] = (name, module, config)
    return found.values()


def _inject(root, level):
    replaced = {}
    for name, module, config in _configs(root) if level != "modules" else ():
        if config._attn_implementation == "sdpa" and module._can_set_attn_implementation():
            config._attn_implementation_internal = NAME
        if config._attn_implementation == NAME:
            replaced[f"{name}.attention" if name else "attention"] = "transformers_attention"
    return replaced


def _restore(root):
    for _, _, config in _configs(root):
        if config._attn_implementation == NAME:
            config._attn_implementation_internal = "sdpa"


whole_model(_inject, _restore)
