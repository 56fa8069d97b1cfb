"""The functions, as they are called. All take tensors of float32, bfloat16 and float16 on a GPU
(any floats on the CPU, where they are plain torch), have gradients, run under torch.compile and in
CUDA graphs, and give dense results."""

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from . import reference
from ._autograd import transforms as _transforms
from ._operators import functions as _functions


def _trains(*tensors):
    """Whether gradients of any of these are recorded."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


_NAMES = {None: ""} | {dtype: name for name, dtype in reference.DTYPES.items()}


def _has_only_a_device():
    """Of modes of functions, which see the calls, whether there is one alone, a default device, as
    torch.set_default_device() leaves it. It changes what makes tensors of none."""
    return (
        torch._C._len_torch_function_stack() == 1
        and type(torch._C._get_function_stack_at(0)) is DeviceContext
    )


# Subclasses see the calls too, and so do the proxies of tracers.
_PLAIN = (torch.Tensor, torch.nn.Parameter)

# A call asks each of these once, so they are not looked up.
_is_compiling, _is_tracing = torch.compiler.is_compiling, torch._C._is_tracing
_has_functorch, _is_grad_enabled = torch._C._are_functorch_transforms_active, torch.is_grad_enabled
_has_function_mode = torch._C._is_torch_function_mode_enabled
_dispatch_modes, _has_autocast = torch._C._len_torch_dispatch_stack, torch._C._is_any_autocast_enabled


def _op(name):
    """The operator. Where nothing wants a gradient it is called below autograd, whose part of an
    operator is in Python and takes longer than all else on the host; and with one number for its
    attributes, each of which takes torch as long as the call.

    A call is one function of Python, for each more takes a tenth of a microsecond.
    """
    function = _functions[name]
    forward, autocast = function.forward, function.entry.autocast
    unnumbered = _below_autograd(forward._op)  # without the overload's own __call__
    if not function.has_gradients:
        return _without_gradients(forward, unnumbered)
    numbered, numbers, number_of = function.numbered._op, function.numbers, function.number_of
    operands, is_list = len(function.operands), function.is_list

    def call(*arguments):
        # compilers, tracers and transforms see the operator itself
        if _is_compiling() or _is_tracing() or _has_functorch() or forward_ad._current_level >= 0:
            return forward(*arguments)
        given, trained, seen = arguments[:operands], False, _has_function_mode()
        for x in given[0] if is_list else given:
            if x is not None:
                if type(x) not in _PLAIN:
                    return forward(*arguments)
                trained = trained or not seen and x.requires_grad  # modes see that too
        if seen:
            return under_modes(arguments)
        if trained and _is_grad_enabled():
            return forward(*arguments)
        if _dispatch_modes() or autocast and _has_autocast():
            return unnumbered(*arguments)
        try:
            number = numbers[arguments[operands:]]
        except (KeyError, TypeError):
            number = number_of(arguments[operands:])
            if number is None:
                return unnumbered(*arguments)
        return numbered(*given, number)

    def under_modes(arguments):
        if not _has_only_a_device():
            return forward(*arguments)
        with torch._C.DisableTorchFunction():
            return call(*arguments)

    return call


def _without_gradients(forward, unnumbered):
    def call(*arguments):
        seen = _is_compiling() or _is_tracing() or _transforms() or _has_function_mode()
        return (forward if seen else unnumbered)(*arguments)

    return call


def _below_autograd(op):
    def call(*arguments):
        with torch._C._AutoDispatchBelowAutograd():
            return op(*arguments)

    return call


_rms_norm, _layer_norm, _ada_norm, _add_norm = (
    _op(n) for n in ("rms_norm", "layer_norm", "ada_norm", "add_norm")
)
_group_norm, _softmax, _rope, _qk_rope, _qk_norm_rope = (
    _op(n) for n in ("group_norm", "softmax", "rope", "qk_rope", "qk_norm_rope")
)
_gated, _linear_gated, _linear_act, _attention, _map, _adamw = (
    _op(n) for n in ("gated", "linear_gated", "linear_act", "attention", "map", "adamw")
)


def rms_norm(x, weight=None, bias=None, *, eps=1e-6, offset=0.0, rounding="once", dtype=None):
    """x / sqrt(mean(x^2) + eps) * (offset + weight) + bias over the last dim.

    x [..., C]; weight, bias [C]. eps None: the machine epsilon of x's dtype, as torch.nn.RMSNorm.
    rounding: "once", or where "diffusers" and "llama" (transformers) round in between.
    """
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    return _rms_norm(x, weight, bias, eps, offset, rounding, _NAMES[dtype])


def layer_norm(x, weight=None, bias=None, *, eps=1e-5, dtype=None):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dim. x [..., C]."""
    return _layer_norm(x, weight, bias, eps, _NAMES[dtype])


def ada_norm(
    x, scale=None, shift=None, weight=None, bias=None, *, kind="layer", eps=1e-6,
    rounding="once", dtype=None,
):
    """A norm and its modulation, norm(x) * (1 + scale) + shift, in one pass.

    scale, shift: [C], [B, C] (per sample), or of x's rank with sizes of x's or 1. kind: "layer" or
    "rms".
    """
    return _ada_norm(x, scale, shift, weight, bias, kind, eps, rounding, _NAMES[dtype])


def add_norm(
    x, add, gate=None, scale=None, shift=None, weight=None, bias=None, *, kind="layer", eps=1e-6,
    offset=0.0, rounding="once", dtype=None,
):
    """(y, sum): sum = x + gate * add, rounded to x's dtype, and y its norm with weight and
    modulation, in one pass. gate as scale in ada_norm()."""
    return _add_norm(
        x, add, gate, scale, shift, weight, bias, kind, eps, offset, rounding, _NAMES[dtype]
    )


def group_norm(x, groups, weight=None, bias=None, *, eps=1e-5, act="none"):
    """Group norm of x [N, C, ...] and an activation. Fast for channels_last, whose layout the
    result has."""
    y = _group_norm(x.movedim(1, -1), weight, bias, groups, eps, act)
    return y.movedim(-1, 1)


def softmax(x):
    """Softmax over the last dim."""
    return _softmax(x)


def rope(x, cos, sin, *, style="interleaved"):
    """Rotary position embedding of x [B, S, ..., D].

    cos, sin: [S, P] or [B|1, S, P] for P pairs, or with D columns, both of a pair equal. style:
    "interleaved" (pairs 2 i, 2 i + 1) or "half" (i, i + D / 2).
    """
    return _rope(x, cos, sin, style)


def qk_rope(q, k, cos, sin, *, style="interleaved"):
    """(q, k) of [B, S, heads, D], rotated as rope() does, in one call."""
    return _qk_rope(q, k, cos, sin, style)


def qk_norm_rope(
    q, k, weight_q=None, weight_k=None, cos=None, sin=None, *, eps=1e-6, style="interleaved",
    across_heads=False, rounding="once",
):
    """(q, k) of [B, S, heads, D] after their RMS norms and rotation. across_heads: the norms are
    over all heads together, weights [heads * D]."""
    return _qk_norm_rope(
        q, k, weight_q, weight_k, cos, sin, eps, style, across_heads, rounding
    )


def gated(x, other=None, *, act="silu", gate="second"):
    """a * act(b) of the halves of x's last dim, or of x and other. gate: which one is b, "first"
    or "second"."""
    return _gated(x, other, act, gate)


def linear_gated(x, weight, bias=None, *, act="gelu", gate="second"):
    """gated(linear(x, weight, bias)) without the wide product in memory, unless gradients are
    recorded, which are made from it. weight [2 F, K]."""
    if _trains(x, weight, bias):
        return gated(_linear_act(x, weight, bias, "none"), act=act, gate=gate)
    return _linear_gated(x, weight, bias, act, gate)


def linear_act(x, weight, bias=None, *, act="gelu_tanh"):
    """act(linear(x, weight, bias)). weight [F, K]."""
    if act != "none" and _trains(x, weight, bias):  # its gradient is made from the product
        return map(f"{act}(z)", z=_linear_act(x, weight, bias, "none"))
    return _linear_act(x, weight, bias, act)


def attention(q, k, v, bias=None, *, scale=None, causal=False, return_lse=False):
    """softmax(scale q k^T + bias) v of q [B, S, heads, D], k and v [B, T, kv_heads, D], kv_heads a
    divisor of heads. bias [B|1, heads|1, S|1, T] is added to the scores. causal: aligned to the
    last query and key. return_lse: also the logarithms of the sums, [B, heads, S], which have no
    gradient. scale None: 1 / sqrt(D)."""
    if scale == 0:
        raise ValueError("ebb_kernels: attention: a scale of 0 is not served")
    o, lse = _attention(q, k, v, bias, 0.0 if scale is None else scale, causal)
    return (o, lse) if return_lse else o


def map(formula, dtype=None, **inputs):
    """A formula of named tensors that broadcast against each other, compiled at the first call:

    map("silu(x) * y + 0.1 * z", x=x, y=y, z=z)

    Python's operators, exp, log, sin, cos, tanh, sqrt, rsqrt, sigmoid, erf, floor, abs, pow, min,
    max, where, and activations by name. dtype: of the result; None: the widest of the inputs.
    """
    return _map(list(inputs.values()), formula, ",".join(inputs), _NAMES[dtype])


def adamw_(p, m, v, grad, numbers, *, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    """One step of AdamW in place on p, m and v. numbers: float32 [4] on their device, the learning
    rate, 1 - beta1^t, 1 - beta2^t and a factor of the gradient (not positive: the step is left
    out)."""
    _adamw(p, m, v, grad, numbers, beta1, beta2, eps, weight_decay)
