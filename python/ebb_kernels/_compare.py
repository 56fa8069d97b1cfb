"""How far a call of a function is from its reference in float64."""

import math

import torch

# Unit roundoff, with room for sums in another order. Of the largest magnitude, at least 1.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def flat(values):
    """Tensors and None of arguments or results, those in lists in their place."""
    out = []
    for v in values:
        out.extend(flat(v) if isinstance(v, (list, tuple)) else [v])
    return out


def tensors(values):
    return [x for x in flat(values) if isinstance(x, torch.Tensor)]


def results(value):
    return () if value is None else value if isinstance(value, (list, tuple)) else (value,)


def exact(value, requires_grad=False):
    """A copy of an argument in float64; what is no tensor as it is."""
    if isinstance(value, (list, tuple)):
        return [exact(v, requires_grad) for v in value]
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return value.detach().clone()
    wants_grad = requires_grad and value.requires_grad
    return value.detach().to(torch.float64, copy=True).requires_grad_(wants_grad)


def tolerance(arguments):
    """That of the shortest dtype among the arguments; None where there is none."""
    dtypes = [x.dtype for x in tensors(arguments)]
    return max((TOLERANCE[t] for t in dtypes if t in TOLERANCE), default=None)


def error(got, want, allowed):
    """The largest difference, in units of what is allowed; infinite for other shapes and for what
    is not finite."""
    if got.shape != want.shape:
        return math.inf
    if want.numel() == 0:
        return 0.0
    want = want.detach().to(got.device, torch.float64)
    scale = allowed * want.abs().max().clamp(min=1).item()
    difference = (got.detach().double() - want).abs().max().item() / scale
    return difference if math.isfinite(difference) else math.inf


def of_call(op, reference, operands, attributes):
    """{what: error} of the results of op(*operands, *attributes) and of the gradients of its
    operands, for random gradients of its results."""
    allowed = tolerance(operands)
    wide = exact(operands, requires_grad=True)
    got, want = results(op(*operands, *attributes)), results(reference(*wide, *attributes))
    found = {f"result {i}": error(y, w, allowed) for i, (y, w) in enumerate(zip(got, want))}
    pairs = [(y, w) for y, w in zip(got, want) if y.requires_grad]
    inputs = [(x, e) for x, e in zip(flat(operands), flat(wide)) if e is not None and e.requires_grad]
    if not pairs or not inputs:
        return found
    seeds = [torch.randn(y.shape, generator=torch.Generator().manual_seed(7)) for y, _ in pairs]
    seeds = [s.to(y) for s, (y, _) in zip(seeds, pairs)]
    grads = torch.autograd.grad([y for y, _ in pairs], [x for x, _ in inputs], seeds)
    wide_seeds = [s.to(w) for s, (_, w) in zip(seeds, pairs)]
    wide_grads = torch.autograd.grad([w for _, w in pairs], [e for _, e in inputs], wide_seeds)
    for i, (d, w, (x, _)) in enumerate(zip(grads, wide_grads, inputs)):
        found[f"gradient {i}"] = error(d, w, allowed) if d.dtype == x.dtype else math.inf
    return found
