"""A linear layer and what follows it, in one product."""

import torch

from .. import ops
from .guards import bare, of_dtype, served
from .recipe import path_of


def _plain(linear, x):
    """Whether a layer is nothing but a product: adapters and quantised layers are other classes.
    Products in f32 are torch's: ebb's are of 16 bits."""
    if type(linear) is not torch.nn.Linear or not bare(linear):
        return False
    if x.dtype == torch.float32 and x.device.type == "cuda":
        return False
    weight, bias = linear.weight, linear.bias
    return served(x, weight, bias) and of_dtype(x.dtype, weight, bias)


def gated(x, linear, act, gate):
    """ops.gated() of a linear layer of x."""
    if _plain(linear, x):
        return ops.linear_gated(x, linear.weight, linear.bias, act=act, gate=gate)
    return product(linear(x), act=act, gate=gate)


def product(a, b=None, *, act, gate):
    """ops.gated(), where ebb serves it."""
    if served(a, b) and (b is None or of_dtype(a.dtype, b)):
        return ops.gated(a, b, act=act, gate=gate)
    first, second = a.chunk(2, -1) if b is None else (a, b)
    if gate == "first":
        first, second = second, first
    return first * _ACTIVATIONS[act](second)


def activated(x, linear, act):
    """act(linear(x))"""
    if _plain(linear, x):
        return ops.linear_act(x, linear.weight, linear.bias, act=act)
    return _ACTIVATIONS[act](linear(x))


_ACTIVATIONS = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
}


_NAMES = {
    "torch.nn.modules.activation:SiLU": "silu",
    "transformers.activations:SiLUActivation": "silu",
    "transformers.activations:GELUActivation": "gelu",
    "transformers.activations:GELUTanh": "gelu_tanh",
    "transformers.activations:NewGELUActivation": "gelu_tanh",
    "transformers.activations:QuickGELUActivation": "gelu_quick",
}


def activation_of(module) -> str | None:
    """The name of a module's activation, None where ebb has none of its kind."""
    if type(module) is torch.nn.GELU:
        return "gelu_tanh" if module.approximate == "tanh" else "gelu"
    return _NAMES.get(path_of(type(module)))
