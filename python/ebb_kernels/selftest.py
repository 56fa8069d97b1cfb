"""Compares every function with plain torch in float64, results and gradients, on the GPU where torch
sees one: python -m ebb_kernels.selftest. The exit code is 0 if all agree."""

import ctypes
import platform
import sys

import torch

from . import __version__, _compare, _library, _operators, ops, reference
from ._cases import CASES, LARGER, operands


def _describe(device):
    library = _library.load().ebb_kernels_version().decode()
    print(f"ebb_kernels {__version__} (library {library}, {_library.path()})")
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.platform()}")
    if _operators.MODE != "on":
        print(f"EBB_KERNELS: {_operators.MODE}")
    if device == "cpu":
        print("torch sees no GPU: on the CPU the functions are plain torch")
        return
    p = torch.cuda.get_device_properties(device)
    cuda = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(cuda))
    print(f"{p.name}, compute capability {p.major}.{p.minor}, {p.total_memory / 1e9:.0f} GB, "
          f"driver for CUDA {cuda.value // 1000}.{cuda.value % 1000 // 10}")


def _check_adamw(dtype, device):
    """{what: error} of a step, which is in place."""
    generator = torch.Generator().manual_seed(1)
    p, m, v, grad = (torch.rand(33, 7, generator=generator).to(device) for _ in range(4))
    given = [p, m, v, grad.to(dtype), torch.tensor([1e-2, 0.1, 1e-3, 1.0], device=device)]
    wide = _compare.exact(given)
    numbers = (0.9, 0.999, 1e-8, 0.1)
    _operators.functions["adamw"].forward(*given, *numbers)
    reference.adamw(*wide, *numbers)
    allowed = _compare.TOLERANCE[torch.float32]
    return {n: _compare.error(x, w, allowed) for n, x, w in zip("pmv", given, wide)}


def _calls(name, device):
    """(description, function that gives the errors) of the calls of a function."""
    if name == "adamw":
        for dtype in _compare.TOLERANCE:
            yield str(dtype), lambda dtype=dtype: _check_adamw(dtype, device)
        return
    op = _operators.functions[name].forward
    for case in CASES + (LARGER if device != "cpu" else []):
        if case.function != name:
            continue
        for dtype in _compare.TOLERANCE:
            yield f"{case} {dtype}", lambda case=case, dtype=dtype: _compare.of_call(
                op, getattr(reference, name),
                operands(case, dtype, device, requires_grad=True), case.attributes,
            )


def _check(name, device):
    """Prints a line, and one for each call that disagrees. Whether none does."""
    worst, count, complaints = 0.0, 0, []
    for what, call in _calls(name, device):
        count += 1
        try:
            errors = call()
        except Exception as e:  # noqa: BLE001  the others are still of interest
            complaints.append(f"{what}: {e}")
            continue
        worst = max(worst, *errors.values())
        complaints += [f"{what}: {part} is {e:.3g} times the tolerance away"
                       for part, e in errors.items() if e > 1]
    verdict = "FAILED" if complaints else "ok"
    print(f"{name:13} {verdict:6} {count:3} calls, at most {worst:.2f} of the tolerance")
    for c in complaints:
        print(f"    {c}")
    return not complaints


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    _describe(device)
    try:
        ops.softmax(torch.zeros(1, 8, device=device))
    except RuntimeError as e:
        print(f"no function runs here: {e}")
        return 1
    good = [_check(name, device) for name in _operators.functions]
    print(f"{sum(good)} of {len(good)} functions agree with torch")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
