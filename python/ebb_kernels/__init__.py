"""ebb's kernels for PyTorch: norms, modulation, rotary embeddings, gated products, attention, and
any expression. See docs/python.md of ebb."""

__version__ = "0.1.0"

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":  # it is there, and lacks something itself
        raise
    raise ImportError(
        "ebb_kernels needs torch 2.10 or newer (pip install torch)", name="ebb_kernels"
    ) from None

from . import layers, nn  # noqa: E402
from .ops import (  # noqa: E402
    ada_norm,
    adamw_,
    add_norm,
    attention,
    gated,
    group_norm,
    layer_norm,
    linear_act,
    linear_gated,
    map,
    qk_norm_rope,
    qk_rope,
    rms_norm,
    rope,
    softmax,
)
from .inject import Report, inject, restore  # noqa: E402

__all__ = [
    "Report",
    "ada_norm",
    "adamw_",
    "add_norm",
    "attention",
    "gated",
    "group_norm",
    "inject",
    "layer_norm",
    "layers",
    "linear_act",
    "linear_gated",
    "map",
    "nn",
    "qk_norm_rope",
    "qk_rope",
    "restore",
    "rms_norm",
    "rope",
    "softmax",
]
