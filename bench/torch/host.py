"""The time of ebb's calls on the host: what torch takes for any operator of its kind, and what is
ebb's own.

    EBB_KERNELS_LIBRARY=build/libebb_kernels.so PYTHONPATH=python python bench/torch/host.py

On a GPU where there is one, without waiting for it; else ebb's CPU backend serves a tensor of no
elements, for which all is done but the kernel. `operator`: called with numbers for its attributes,
below Python; `torch`: an operator of torch with one operand and one result (aten::clone), called
the same way; `by default`: under a default device, as torch.set_default_device() leaves it. Least
of many series, so that other programs count little. One JSON line a function.
"""

import contextlib
import json
import time

import torch

from ebb_kernels import _operators, ops
from ebb_kernels._cases import CASES, operands

SERIES, CALLS = 60, 300


def least_times(calls):
    """Microseconds by name of (call, context); the series of all calls by turns."""
    best = dict.fromkeys(calls, float("inf"))
    for call, context in calls.values():
        with context:
            for _ in range(100):
                call()
    for _ in range(SERIES):
        for name, (call, context) in calls.items():
            with context:
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                best[name] = min(best[name], 1e6 * (time.perf_counter() - start) / CALLS)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return {name: round(us, 2) for name, us in best.items()}


def cases():
    seen = set()
    for case in CASES:
        if case.function not in seen and not case.layouts:
            seen.add(case.function)
            yield case


def without_elements(x):
    return [without_elements(y) for y in x] if isinstance(x, list) else None if x is None else x[:0]


def main():
    gpu = torch.cuda.is_available()
    torch.set_num_threads(1)
    libraries, functions = _operators.register("ebb_kernels_host", engine_on_cpu=True)
    ops._functions.update(functions)
    device = torch.cuda.get_device_name() if gpu else "CPU, without elements"
    for case in cases():
        if not gpu and case.function != "rms_norm":
            continue  # the others' operands may not be empty
        given = operands(case, torch.float32, "cuda" if gpu else "cpu")
        if not gpu:
            given = [without_elements(given[0]), *given[1:]]
        function = functions[case.function]
        number = function.number_of(tuple(case.attributes))
        call, x = ops._op(case.function), given[0][0] if function.is_list else given[0]
        arguments, clone = (*given, *case.attributes), torch.ops.aten.clone.default._op
        calls = {
            "call": lambda: call(*arguments),
            "operator": lambda: function.numbered._op(*given, number),
            "torch": lambda: clone(x),
            "x + x": lambda: x + x,
        }
        by_default = {f"{name}, by default": (calls[name], x.device) for name in ("call", "x + x")}
        plain = {name: (c, contextlib.nullcontext()) for name, c in calls.items()}
        times = least_times(plain | by_default)
        line = {"bench": "host", "case": str(case), "us": times, "device": device,
                "torch_version": torch.__version__}
        print(json.dumps(line), flush=True)
    del libraries


if __name__ == "__main__":
    main()
