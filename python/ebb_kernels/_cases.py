"""Calls of every function, for the self-test and all tests: operands by shape, and attributes in the
order of the schema."""

from dataclasses import dataclass, field

import torch


@dataclass
class Case:
    function: str
    shapes: list  # a shape each, None: absent; a list of shapes for a list of tensors
    attributes: tuple = ()
    label: str = ""
    # Of operands: how they lie, by position (see laid_out); the others are dense.
    layouts: dict = field(default_factory=dict)
    fixed: tuple = ()  # operands without gradients: tables

    def __str__(self):
        return f"{self.function} {self.label or self.shapes} {self.attributes}"


NORM = ("once", "")
CASES = [
    Case("rms_norm", [(4, 37, 64), None, None], (1e-6, 0.0, *NORM)),
    Case("rms_norm", [(5, 129), (129,), None], (1e-5, 0.0, *NORM)),
    Case("rms_norm", [(3, 7, 65), (65,), (65,)], (1e-6, 1.0, *NORM)),
    Case("rms_norm", [(2, 9, 96), (96,), None], (1e-6, 0.0, "diffusers", "")),
    Case("rms_norm", [(2, 9, 96), None, None], (1e-6, 0.0, "diffusers", "")),
    Case("rms_norm", [(2, 9, 96), (96,), None], (1e-6, 0.0, "llama", "")),
    Case("rms_norm", [(1, 1), (1,), None], (1e-6, 0.0, *NORM)),
    Case("rms_norm", [(8, 6, 64), (64,), None], (1e-6, 0.0, *NORM), layouts={0: "columns"}),
    Case("rms_norm", [(8, 6, 64), (64,), None], (1e-6, 0.0, *NORM), layouts={0: "transposed"}),
    Case("rms_norm", [(4, 64), (64,), None], (1e-6, 0.0, *NORM), layouts={0: "shifted"}),
    Case("rms_norm", [(4, 64), (64,), None], (1e-6, 0.0, *NORM), layouts={0: "overlapping"}),
    Case("layer_norm", [(4, 37, 64), (64,), (64,)], (1e-5, "")),
    Case("layer_norm", [(33, 200), None, None], (1e-6, "")),
    Case("ada_norm", [(2, 9, 64), (2, 64), (2, 64), None, None], ("layer", 1e-6, *NORM)),
    Case(
        "ada_norm",
        [(2, 9, 64), (2, 1, 64), (2, 1, 64), None, None],
        ("layer", 1e-6, *NORM),
        layouts={1: "columns", 2: "columns"},
    ),
    Case("ada_norm", [(2, 9, 64), (2, 9, 64), (2, 9, 64), (64,), None], ("rms", 1e-6, *NORM)),
    Case("ada_norm", [(2, 9, 64), (64,), (64,), None, None], ("rms", 1e-6, "diffusers", "")),
    Case("add_norm", [(2, 9, 64), (2, 9, 64), *[None] * 5], ("rms", 1e-6, 0.0, *NORM)),
    Case(
        "add_norm",
        [(2, 9, 64), (2, 9, 64), (2, 64), (2, 64), (2, 64), (64,), (64,)],
        ("layer", 1e-6, 0.0, *NORM),
    ),
    Case(
        "add_norm",
        [(2, 9, 64), (2, 9, 64), (2, 1, 64), (2, 1, 64), (2, 1, 64), None, None],
        ("rms", 1e-6, 0.0, "diffusers", ""),
    ),
    Case("group_norm", [(2, 5, 6, 64), (64,), (64,)], (8, 1e-5, "silu")),
    Case("group_norm", [(2, 30, 32), None, None], (32, 1e-6, "none")),
    Case("softmax", [(3, 5, 77)]),
    Case("rope", [(2, 7, 3, 16), (7, 8), (7, 8)], ("interleaved",), fixed=(1, 2)),
    Case("rope", [(2, 7, 3, 16), (2, 7, 16), (2, 7, 16)], ("half",), "doubled", fixed=(1, 2)),
    Case("rope", [(2, 7, 3, 16), (1, 7, 1, 16), (1, 7, 1, 16)], ("interleaved",), "wan", fixed=(1, 2)),
    Case("rope", [(2, 7, 64), (2, 7, 64), (2, 7, 64)], ("interleaved",), "ltx", fixed=(1, 2)),
    Case("rope", [(2, 7, 3, 16), (7, 4), (7, 4)], ("half",), "partial", fixed=(1, 2)),
    Case(
        "qk_rope",
        [(2, 7, 3, 16), (2, 7, 1, 16), (7, 16), (7, 16)],
        ("half",),
        fixed=(2, 3),
    ),
    Case(
        "qk_rope",
        [(2, 7, 3, 16), (2, 7, 3, 16), (2, 7, 8), (2, 7, 8)],
        ("interleaved",),
        layouts={0: "heads", 1: "columns"},
        fixed=(2, 3),
    ),
    Case("qk_rope", [(2, 7, 64), (2, 7, 64), (7, 64), (7, 64)], ("half",), fixed=(2, 3)),
    Case(
        "qk_norm_rope",
        [(2, 7, 3, 64), (2, 7, 3, 64), (64,), (64,), (7, 64), (7, 64)],
        (1e-6, "interleaved", False, "once"),
        fixed=(4, 5),
    ),
    Case(
        "qk_norm_rope",
        [(2, 7, 3, 64), (2, 7, 3, 64), (192,), (192,), (7, 64), (7, 64)],
        (1e-6, "interleaved", True, "once"),
        fixed=(4, 5),
    ),
    Case(
        "qk_norm_rope",
        [(2, 7, 3, 64), (2, 5, 1, 64), (64,), (64,), None, None],
        (1e-6, "half", False, "once"),
    ),
    Case("gated", [(3, 9, 64), None], ("gelu", "second")),
    Case("gated", [(3, 9, 64), None], ("silu", "first")),
    Case("gated", [(3, 9, 64), (3, 9, 64)], ("silu", "first")),
    Case("gated", [(3, 9, 64), (3, 9, 64)], ("gelu_quick", "second")),
    Case("linear_gated", [(3, 9, 32), (64, 32), (64,)], ("gelu", "second")),
    Case("linear_gated", [(9, 32), (64, 32), None], ("silu", "first")),
    Case("linear_act", [(3, 9, 32), (48, 32), (48,)], ("gelu_tanh",)),
    Case("linear_act", [(3, 9, 32), (48, 32), None], ("none",), layouts={1: "columns"}),
    Case("attention", [(2, 33, 3, 64), (2, 17, 3, 64), (2, 17, 3, 64), None], (0.0, False)),
    Case("attention", [(1, 40, 4, 64), (1, 40, 2, 64), (1, 40, 2, 64), None], (0.0, True)),
    Case(
        "attention",
        [(2, 20, 2, 64), (2, 24, 2, 64), (2, 24, 2, 64), (2, 1, 1, 24)],
        (0.25, False),
        layouts={0: "heads", 1: "heads", 2: "heads"},
        fixed=(3,),
    ),
    Case("map", [[(4, 33), (4, 33), (33,)]], ("silu(x) * y + 0.1 * z", "x,y,z", "")),
    Case("map", [[(4, 33)]], ("where(x > 0, x, 0.1 * x) ** 2", "x", "")),
    Case("map", [[(4, 1), (1, 33)]], ("a + exp(-b ** 2)", "a,b", "f32")),
]

# Sizes as models have them, for kernels that small ones do not reach: on a GPU alone.
LARGER = [
    Case("rms_norm", [(300, 4096), (4096,), None], (1e-6, 0.0, *NORM)),
    Case(
        "add_norm",
        [(2, 200, 3072), (2, 200, 3072), (2, 3072), (2, 3072), (2, 3072), None, None],
        ("layer", 1e-6, 0.0, *NORM),
    ),
    Case("linear_gated", [(2, 256, 1024), (2048, 1024), (2048,)], ("gelu", "second")),
    Case("linear_act", [(2, 256, 1024), (1536, 1024), (1536,)], ("gelu_tanh",)),
    Case("attention", [(2, 384, 8, 64), (2, 384, 8, 64), (2, 384, 8, 64), None], (0.0, False)),
    Case("attention", [(1, 640, 8, 128), (1, 640, 2, 128), (1, 640, 2, 128), None], (0.0, True)),
    # more heads than an H200 runs the gradient of at once, and several query heads in a tile
    Case("attention", [(1, 1200, 104, 64), *[(1, 1200, 52, 64)] * 2, None], (0.0, True)),
]


def laid_out(x, layout):
    """The values of x in memory that lies in another way."""
    if layout == "columns":  # a chunk of a wider tensor
        wide = x.new_zeros(*x.shape[:-1], 3 * x.shape[-1])
        wide[..., x.shape[-1] : 2 * x.shape[-1]] = x
        return wide[..., x.shape[-1] : 2 * x.shape[-1]]
    if layout == "transposed":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "heads":  # [B, S, heads, D] that lies as [B, heads, S, D]
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "shifted":  # an address that is no multiple of 16 bytes
        flat = x.new_zeros(x.numel() + 1)
        flat[1:] = x.flatten()
        return flat[1:].view(x.shape)
    if layout == "overlapping":  # rows that share memory; other values than x's
        flat = x.flatten()
        return flat.as_strided(x.shape, (x.shape[-1] // 2, 1))
    return x


def operands(case, dtype, device, requires_grad=False):
    """Random operands, the same for every dtype and device."""
    generator = torch.Generator().manual_seed(len(str(case)))

    def one(shape, index):
        if shape is None:
            return None
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        if index in case.fixed and "rope" in case.function:
            x = _doubled(x, case)
        x = laid_out(x.to(dtype).to(device), case.layouts.get(index))
        return x.requires_grad_(requires_grad and index not in case.fixed)

    if isinstance(case.shapes[0], list):
        return [[one(s, i) for i, s in enumerate(case.shapes[0])]]
    return [one(s, i) for i, s in enumerate(case.shapes)]


def _doubled(table, case):
    """Tables with a number an element have the same for both of a pair."""
    width = case.shapes[0][-1]
    if table.shape[-1] != width:
        return table
    if "half" in case.attributes:
        return torch.cat([table[..., : width // 2]] * 2, -1)
    return table[..., ::2].repeat_interleave(2, -1)
