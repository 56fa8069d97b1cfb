"""The rows of functions.py: ebb's functions at sizes of known models, what PyTorch's users write
there, and other libraries' kernels. Sizes: docs/python.md, "Measured"."""

import contextlib
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import ebb_kernels as ek

BF16 = torch.bfloat16


@dataclass
class Row:
    function: str
    size: str
    make: callable  # a list of operands
    ebb: callable
    torch: callable = None  # what users write; also run compiled
    others: dict = field(default_factory=dict)
    trained: tuple = ()  # operands whose gradients are measured
    # Bytes moved in a direction at least, operands and results once. None: not bound by memory.
    bytes: callable = None
    one_row: callable = None  # operands of the smallest use, for the time of a call
    autotuned: bool = False  # torch's products are also compiled with autotuning
    exact: callable = None  # what both are compared with in f32; None: torch

    @property
    def name(self):
        return f"{self.function}/{self.size}"


def rand(*shape, dtype=BF16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def size_of(*shape):
    return "x".join(map(str, shape))


def _liger(name):
    """A function of liger-kernel, if it is installed."""
    with contextlib.suppress(ImportError, AttributeError):
        from liger_kernel import ops
        return getattr(ops, name)
    return None


def _quack(name):
    with contextlib.suppress(Exception):  # its compiler is optional
        import quack
        return getattr(quack, name)
    return None


def _given(**ways):
    return {name: way for name, way in ways.items() if way is not None}


# ---- norms ------------------------------------------------------------------------------------

def rms(x, w=None, eps=1e-6):
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    return (y if w is None else y * w.float()).to(x.dtype)


def norm_bytes(forward, backward):
    """Passes over a tensor of `forward` elements in 16 bits."""
    return lambda n: lambda direction: 2 * n * (forward if direction == "forward" else backward)


def rms_rows():
    liger, quack = _liger("LigerRMSNormFunction"), _quack("rmsnorm")
    shapes = [(1, 1024, 2048), (2, 1024, 2048), (4, 1024, 2048), (2, 4096, 3072), (4, 4096, 3072),
              (8, 8192, 4096), (8192, 4096), (1, 4096), (64, 4096), (1, 4608, 24, 128)]
    for s in shapes:
        n = torch.Size(s).numel()
        yield Row(
            "rms_norm", size_of(*s), lambda s=s: [rand(*s), rand(s[-1])],
            lambda x, w: ek.rms_norm(x, w),
            lambda x, w: rms(x, w),
            {"F.rms_norm": lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6)}
            | _given(liger=liger and (lambda x, w: liger.apply(x, w, 1e-6, 0.0, "llama", False)),
                     quack=quack and (lambda x, w: quack(x.flatten(0, -2), w, eps=1e-6))),
            trained=(0, 1), bytes=norm_bytes(2, 3)(n),
            one_row=lambda: [rand(1, 4096), rand(4096)])
    s = (1, 8192, 2048)
    yield Row("rms_norm", size_of(*s) + "_no_weight", lambda: [rand(*s)],
              lambda x: ek.rms_norm(x), lambda x: rms(x),
              {"F.rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], None, 1e-6)},
              trained=(0,), bytes=norm_bytes(2, 3)(torch.Size(s).numel()))


def layer_rows():
    for s in ((64, 256, 1152), (2, 4096, 3072)):
        yield Row("layer_norm", size_of(*s), lambda s=s: [rand(*s), rand(s[-1]), rand(s[-1])],
                  lambda x, w, b: ek.layer_norm(x, w, b),
                  lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
                  trained=(0, 1, 2), bytes=norm_bytes(2, 3)(torch.Size(s).numel()),
                  one_row=lambda: [rand(1, 1152), rand(1152), rand(1152)])


def modulated_layer_norm(x, shift, scale):
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


def ada_rows():
    for s in ((1, 4608, 3072), (2, 4096, 3072)):  # Flux and Qwen-Image; DiT-like
        yield Row("ada_norm", "layer_" + size_of(*s),
                  lambda s=s: [rand(*s), rand(s[0], 1, s[-1]), rand(s[0], 1, s[-1])],
                  lambda x, shift, scale: ek.ada_norm(x, scale, shift),
                  modulated_layer_norm, trained=(0, 1, 2),
                  bytes=norm_bytes(2, 3)(torch.Size(s).numel()),
                  one_row=lambda: [rand(1, 1, 3072), rand(1, 1, 3072), rand(1, 1, 3072)])


def add_rms(x, branch, gate, shift, scale):
    x = x + gate * branch
    return rms(x) * (1 + scale) + shift, x


def add_layer(x, branch, gate, shift, scale):
    """Wan's: modulation in f32 beside 16-bit states."""
    x = (x.float() + branch * gate).to(x.dtype)
    y = F.layer_norm(x.float(), x.shape[-1:], eps=1e-6)
    return (y * (1 + scale) + shift).to(x.dtype), x


def add_rows():
    for tokens in (8064, 2688):  # LTX-Video, 512x768: 161 and 49 frames
        s = (2, tokens, 2048)
        yield Row("add_norm", "rms_" + size_of(*s),
                  lambda s=s: [rand(*s), rand(*s), *(rand(2, 1, 2048) for _ in range(3))],
                  lambda x, b, g, shift, scale: ek.add_norm(x, b, g, scale, shift, kind="rms"),
                  add_rms, trained=(0, 1, 2, 3, 4),
                  bytes=norm_bytes(4, 6)(torch.Size(s).numel()),
                  one_row=lambda: [rand(1, 1, 2048) for _ in range(5)])
    for width in (5120, 1536):  # Wan 14B and 1.3B, 81 frames at 480p
        s = (1, 32760, width)
        yield Row("add_norm", "layer_f32_modulation_" + size_of(*s),
                  lambda s=s, c=width: [rand(*s), rand(*s), *(rand(1, 1, c, dtype=torch.float32)
                                                              for _ in range(3))],
                  lambda x, b, g, shift, scale: ek.add_norm(x, b, g, scale, shift, dtype=BF16),
                  add_layer, trained=(0, 1, 2, 3, 4),
                  bytes=norm_bytes(4, 6)(torch.Size(s).numel()))


def group_rows():
    def images(b, h, w, c):
        return rand(b, h, w, c).permute(0, 3, 1, 2)

    for s in ((2, 128, 128, 320), (32, 64, 64, 192)):
        yield Row("group_norm", "silu_" + size_of(*s),
                  lambda s=s: [images(*s), rand(s[-1]), rand(s[-1])],
                  lambda x, w, b: ek.group_norm(x, 32, w, b, act="silu"),
                  lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)),
                  trained=(0, 1, 2), bytes=norm_bytes(2, 3)(torch.Size(s).numel()),
                  one_row=lambda: [images(1, 1, 1, 64), rand(64), rand(64)])


def softmax_rows():
    s = (16384, 4096)
    yield Row("softmax", size_of(*s), lambda: [rand(*s)], ek.softmax,
              lambda x: torch.softmax(x, -1), trained=(0,),
              bytes=norm_bytes(2, 3)(torch.Size(s).numel()), one_row=lambda: [rand(1, 4096)])


# ---- rotations --------------------------------------------------------------------------------

def angles(tokens, width, interleaved, dtype=torch.float32):
    t = torch.randn(tokens, width // 2, device="cuda")
    t = t.repeat_interleave(2, -1) if interleaved else torch.cat([t, t], -1)
    return t.cos().to(dtype), t.sin().to(dtype)


def turn_pairs(x, cos, sin):
    """diffusers' apply_rotary_emb on [B, S, heads, D] or [B, S, C]."""
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    partner = torch.stack([-b, a], -1).flatten(-2)
    return (x.float() * cos + partner.float() * sin).to(x.dtype)


def turn_halves(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def qk_bytes(*shape):
    n = torch.Size(shape).numel()
    return lambda direction: 2 * n * (4 if direction == "forward" else 6)


def qk_rows():
    def over_channels(q, k, wq, wk, cos, sin):
        return turn_pairs(rms(q, wq), cos, sin), turn_pairs(rms(k, wk), cos, sin)

    s = (2, 8064, 2048)
    yield Row("qk_norm_rope", "ltx_" + size_of(*s),
              lambda s=s: [rand(*s), rand(*s), rand(2048), rand(2048), *angles(8064, 2048, True)],
              lambda *given: ek.qk_norm_rope(*given), over_channels, trained=(0, 1, 2, 3),
              bytes=qk_bytes(*s))

    def across_heads(q, k, wq, wk, cos, sin):
        cos, sin = cos[:, None], sin[:, None]
        q, k = (rms(t.flatten(2), w).view_as(t) for t, w in ((q, wq), (k, wk)))
        return turn_pairs(q, cos, sin), turn_pairs(k, cos, sin)

    w = (1, 32760, 40, 128)
    yield Row("qk_norm_rope", "wan_across_heads_" + size_of(*w),
              lambda: [rand(*w), rand(*w), rand(5120), rand(5120), *angles(32760, 128, True)],
              lambda *given: ek.qk_norm_rope(*given, across_heads=True), across_heads,
              trained=(0, 1, 2, 3), bytes=qk_bytes(*w))

    def per_head(q, k, wq, wk, cos, sin):
        cos, sin = cos[:, None], sin[:, None]
        return turn_pairs(rms(q, wq), cos, sin), turn_pairs(rms(k, wk), cos, sin)

    f = (1, 4608, 24, 128)
    yield Row("qk_norm_rope", "flux_per_head_" + size_of(*f),
              lambda: [rand(*f), rand(*f), rand(128), rand(128), *angles(4608, 128, True)],
              lambda *given: ek.qk_norm_rope(*given), per_head, trained=(0, 1, 2, 3),
              bytes=qk_bytes(*f),
              one_row=lambda: [rand(1, 1, 24, 128), rand(1, 1, 24, 128), rand(128), rand(128),
                               *angles(1, 128, True)])


def rope_rows():
    liger = _liger("LigerRopeFunction")

    def torchs(q, k, cos, sin):
        cos, sin = cos[None, :, None], sin[None, :, None]
        return turn_halves(q, cos, sin), turn_halves(k, cos, sin)

    def ligers(q, k, cos, sin):
        # on copies: its kernel overwrites its operands
        q, k = (t.clone().transpose(1, 2) for t in (q, k))
        out = liger.apply(q, k, cos[None], sin[None])
        return tuple(t.transpose(1, 2) for t in out)

    def ebb(q, k, cos, sin):
        return ek.qk_rope(q, k, cos, sin, style="half")

    for b, tokens in ((1, 8192), (64, 1)):
        n = b * tokens * 40 * 128
        yield Row("rope", f"llama_{b}x{tokens}x32+8x128",
                  lambda b=b, t=tokens: [rand(b, t, 32, 128), rand(b, t, 8, 128),
                                         *angles(t, 128, False, BF16)],
                  ebb, torchs, _given(liger=liger and ligers), trained=(0, 1),
                  bytes=lambda d, n=n: 2 * n * 2)
    yield Row("rope", "flux_1x4608x24x128",
              lambda: [rand(1, 4608, 24, 128), *angles(4608, 128, True)],
              lambda x, cos, sin: ek.rope(x, cos, sin),
              lambda x, cos, sin: turn_pairs(x, cos[:, None], sin[:, None]), trained=(0,),
              bytes=lambda d: 2 * 2 * 4608 * 24 * 128,
              one_row=lambda: [rand(1, 1, 24, 128), *angles(1, 128, True)])


# ---- gates and products -----------------------------------------------------------------------

def gated_rows():
    liger = _liger("LigerSiLUMulFunction")
    for rows in (8192, 64):
        s = (rows, 14336)
        yield Row("gated", "silu_" + size_of(*s), lambda s=s: [rand(*s), rand(*s)],
                  lambda a, b: ek.gated(a, b, act="silu", gate="first"),
                  lambda a, b: F.silu(a) * b, _given(liger=liger and liger.apply), trained=(0, 1),
                  bytes=lambda d, n=rows * 14336: 2 * n * (3 if d == "forward" else 5),
                  one_row=lambda: [rand(1, 4096), rand(1, 4096)])
    yield Row("gated", "gelu_2x4096x20480", lambda: [rand(2, 4096, 20480)],
              lambda x: ek.gated(x, act="gelu"), geglu, trained=(0,),
              bytes=lambda d: 2 * 8192 * 10240 * (3 if d == "forward" else 5))


def geglu(x):
    a, b = x.chunk(2, -1)
    return a * F.gelu(b)


def swiglu(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def product_rows():
    for m, k, f, act, gate, after in ((8192, 640, 2560, "gelu", "second", geglu),
                                      (2048, 1280, 5120, "gelu", "second", geglu),
                                      (8192, 1280, 5120, "gelu", "second", geglu),
                                      (4608, 6144, 18432, "silu", "first", swiglu)):
        yield Row("linear_gated", f"{act}_{m}x{k}_to_2x{f}",
                  lambda m=m, k=k, f=f: [rand(m, k), rand(2 * f, k) / k**0.5, rand(2 * f)],
                  lambda x, w, b, act=act, gate=gate: ek.linear_gated(x, w, b, act=act, gate=gate),
                  lambda x, w, b, after=after: after(F.linear(x, w, b)),
                  trained=(0, 1, 2), autotuned=True,
                  one_row=lambda: [rand(1, 64), rand(128, 64), rand(128)])
    for m, k, f in ((16128, 2048, 8192), (4608, 3072, 12288)):  # LTX-Video, Flux
        yield Row("linear_act", f"gelu_tanh_{m}x{k}_to_{f}",
                  lambda m=m, k=k, f=f: [rand(m, k), rand(f, k) / k**0.5, rand(f)],
                  lambda x, w, b: ek.linear_act(x, w, b),
                  lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
                  trained=(0, 1, 2), autotuned=True,
                  one_row=lambda: [rand(1, 64), rand(64, 64), rand(64)])


# ---- attention, formulas, AdamW ---------------------------------------------------------------

def attend(q, k, v, causal=False, backend=None, group=False):
    chosen = sdpa_kernel([backend]) if backend else contextlib.nullcontext()
    with chosen:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group)
    return out.transpose(1, 2)


def attention_rows():
    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
                "efficient": SDPBackend.EFFICIENT_ATTENTION}
    for b, a, s, t, d, kv, causal, label in ((2, 32, 8064, 8064, 64, 32, False, "ltx"),
                                             (1, 24, 4608, 4608, 128, 24, False, "flux"),
                                             (2, 10, 4096, 4096, 64, 10, False, "sdxl"),
                                             (2, 10, 4096, 77, 64, 10, False, "sdxl_text"),
                                             (1, 40, 32760, 32760, 128, 40, False, "wan"),
                                             (1, 32, 8192, 8192, 128, 8, True, "llama"),
                                             (4, 32, 2048, 2048, 128, 8, True, "llama")):
        group = kv != a
        yield Row("attention", f"{label}_{b}x{a}_{s}_{t}_{d}",
                  lambda b=b, a=a, s=s, t=t, d=d, kv=kv: [rand(b, s, a, d), rand(b, t, kv, d),
                                                          rand(b, t, kv, d)],
                  lambda q, k, v, c=causal: ek.attention(q, k, v, causal=c),
                  None,
                  {name: lambda q, k, v, c=causal, x=x, g=group: attend(q, k, v, c, x, g)
                   for name, x in backends.items() if not (g_refused(name) and group)},
                  trained=() if label == "wan" else (0, 1, 2),
                  exact=lambda q, k, v, c=causal, g=group: attend(
                      q, k, v, c, SDPBackend.MATH if g else SDPBackend.EFFICIENT_ATTENTION, g),
                  one_row=lambda: [rand(1, 1, 1, 64), rand(1, 1, 1, 64), rand(1, 1, 1, 64)])


def g_refused(name):
    """Backends without groups of heads."""
    return name == "efficient"


def map_rows():
    formulas = {"swish_gate": ("x * sigmoid(x) * y", 2, lambda x, y: x * torch.sigmoid(x) * y),
                "gate": ("a + g * b", 3, lambda a, g, b: a + g * b),
                "leaky": ("where(x > 0, x, 0.1 * x)", 1, lambda x: torch.where(x > 0, x, 0.1 * x))}
    names = {1: "x", 2: "xy", 3: "agb"}
    for label, (formula, count, function) in formulas.items():
        for megabytes in (1, 16, 256):
            n = megabytes << 19

            def ebb(*given, formula=formula, named=names[count]):
                return ek.map(formula, **dict(zip(named, given)))

            def make(n=n, c=count):
                return [rand(n) for _ in range(c)]

            def moved(direction, n=n, c=count):
                return 2 * n * (c + 1 if direction == "forward" else 2 * c + 1)

            yield Row("map", f"{label}_{megabytes}mb", make, ebb, function,
                      trained=tuple(range(count)), bytes=moved,
                      one_row=lambda c=count: [rand(1024) for _ in range(c)])


ROWS = [row for rows in (rms_rows, layer_rows, ada_rows, add_rows, group_rows, softmax_rows,
                         qk_rows, rope_rows, gated_rows, product_rows, attention_rows, map_rows)
        for row in rows()]
