"""torch's own norms: one rounding, at the end."""

from ...norms import Dialect, norm

norm("torch_rms_norm", Dialect(shape="normalized_shape", one_dtype=True),
     classes=("torch.nn.modules.normalization:RMSNorm",))  # fmt: skip
norm("torch_layer_norm",
     Dialect(kind="layer", bias="bias", shape="normalized_shape", one_dtype=True),
     classes=("torch.nn.modules.normalization:LayerNorm",))  # fmt: skip
