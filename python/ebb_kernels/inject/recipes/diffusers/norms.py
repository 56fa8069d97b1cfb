"""Norms of diffusers. RMSNorm rounds to the weight's dtype before the weight."""

from ...norms import Dialect, norm

norm("diffusers_rms_norm", Dialect(rounding="diffusers", bias="bias", shape="dim"),
     classes=("diffusers.models.normalization:RMSNorm",), digests=("2e07b8fc453b",))  # fmt: skip
norm("diffusers_mochi_rms_norm", Dialect(shape="dim"),
     classes=("diffusers.models.normalization:MochiRMSNorm",), digests=("a2d35f0e1c2c",))  # fmt: skip
norm("diffusers_fp32_layer_norm",
     Dialect(kind="layer", bias="bias", shape="normalized_shape"),
     classes=("diffusers.models.normalization:FP32LayerNorm",), digests=("3fec663df280",))  # fmt: skip
