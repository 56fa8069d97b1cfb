"""Tells torch.utils.flop_counter, when it is imported, how many operations the products and
attention take; by itself FlopCounterMode counts none for operators that it does not know. It is not
imported with the package, since it brings Triton with it."""

from math import prod

from torch.utils.flop_counter import register_flop_formula

from ._operators import functions


def _product(x, weight):
    return 2 * prod(x) * weight[0]


def _linear(x, weight, *rest, out_shape=None):
    return _product(x, weight)


def _linear_backward(grad, x, weight, bias, *attributes, out_shape=None):
    act, needs = attributes[0], attributes[-1]
    again = act != "none"  # the product, for the slope
    return (again + (needs & 1) + (needs >> 1 & 1)) * _product(x, weight)


def _attention(q, k, v, *rest, out_shape=None):
    return 2 * 2 * prod(q) * k[1]  # causal or not, as torch counts its own


def _attention_backward(grad, grad_lse, o, lse, q, k, v, *rest, out_shape=None):
    return 5 * 2 * prod(q) * k[1]


for _name, _forward, _backward in (
    ("linear_act", _linear, _linear_backward),
    ("linear_gated", _linear, _linear_backward),
    ("attention", _attention, _attention_backward),
):
    register_flop_formula(functions[_name].forward._overloadpacket)(_forward)
    register_flop_formula(functions[_name].backward._overloadpacket)(_backward)
