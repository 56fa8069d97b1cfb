"""Formulas of map(), evaluated by torch. The grammar is a part of Python's own, so Python parses
them; comparisons give 1 and 0."""

import ast
import functools
import operator

import torch

from . import reference

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS = {
    name: getattr(torch, name)
    for name in "exp log sin cos tanh sqrt rsqrt sigmoid erf floor abs pow".split()
}
_ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "gelu_quick", "relu")


def _as_tensors(values):
    like = next((v for v in values if isinstance(v, torch.Tensor)), None)
    if like is None:
        like = torch.zeros((), dtype=torch.float64, device="cpu")  # with all devices
    return [v if isinstance(v, torch.Tensor) else like.new_tensor(v) for v in values]


def _call(name, values):
    if name in _ACTIVATIONS:
        return reference.activation(name, *_as_tensors(values))
    if name == "where":
        condition, a, b = _as_tensors(values)
        return torch.where(condition != 0, a, b)
    if name in ("min", "max"):
        return functools.reduce(getattr(torch, f"{name}imum"), _as_tensors(values))
    if name in ("less", "select"):
        return _call("where", values) if name == "select" else values[0] < values[1]
    return _FUNCTIONS[name](*_as_tensors(values))


def _number(value):
    """A comparison's result as a number."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.bool:
        return value.to(torch.get_default_dtype())
    return float(value) if isinstance(value, bool) else value


def evaluate(formula: str, values: dict):
    """The formula of tensors by their names."""

    def visit(node):
        if isinstance(node, ast.Constant):
            return float(node.value)
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.UnaryOp):
            return -visit(node.operand) if isinstance(node.op, ast.USub) else visit(node.operand)
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](visit(node.left), visit(node.right))
        if isinstance(node, ast.Compare):
            left, right = visit(node.left), visit(node.comparators[0])
            return _number(_OPERATORS[type(node.ops[0])](left, right))
        return _number(_call(node.func.id, [visit(a) for a in node.args]))

    shape = torch.broadcast_shapes(*(v.shape for v in values.values()))
    like = next(iter(values.values()))
    value = visit(ast.parse(formula.strip(), mode="eval").body)
    value = value.to(like) if isinstance(value, torch.Tensor) else like.new_tensor(value)
    return value.expand(shape)
