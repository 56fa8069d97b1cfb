"""Layers for the Hub's kernelize(): classes without state of their own, whose forward is run with a
module of the library that it replaces as `self`. All train and compile.

A use with transformers:

    KernelConfig({"RMSNorm": "PATH:RMSNorm", "rotary_pos_emb": "PATH:RotaryPosEmb"},
                 use_local_kernel=True)
"""

from torch import nn

from . import ops


class RMSNorm(nn.Module):
    """Of the LLaMA family: the weight after the rounding to x's dtype."""

    has_backward = True
    can_torch_compile = True

    def forward(self, hidden_states):
        return ops.rms_norm(hidden_states, self.weight, eps=self.variance_epsilon, rounding="llama")


class RotaryPosEmb(nn.Module):
    """q and k [B, heads, S, D] (unsqueeze_dim 1) or [B, S, heads, D] (2) by cos and sin
    [B, S, D]."""

    has_backward = True
    can_torch_compile = True

    def forward(self, q, k, cos, sin, unsqueeze_dim=1):
        if unsqueeze_dim == 1:
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        q, k = ops.qk_rope(q, k, cos, sin, style="half")
        return (q.transpose(1, 2), k.transpose(1, 2)) if unsqueeze_dim == 1 else (q, k)


class SwiGLUMLP(nn.Module):
    """Modules with gate_proj, up_proj and down_proj."""

    has_backward = True
    can_torch_compile = True

    def forward(self, x):
        return self.down_proj(
            ops.gated(self.gate_proj(x), self.up_proj(x), act="silu", gate="first")
        )


class GeGLUMLP(nn.Module):
    """The same with GELU by tanh, as Gemma has it."""

    has_backward = True
    can_torch_compile = True

    def forward(self, x):
        y = ops.gated(self.gate_proj(x), self.up_proj(x), act="gelu_tanh", gate="first")
        return self.down_proj(y)
