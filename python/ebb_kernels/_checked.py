"""EBB_KERNELS_CHECK=1: the first call of each kind is compared with the reference."""

import warnings

import torch

from . import _compare


def _described(value):
    """Of an argument, what decides on the kernel that serves it."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)} strides {list(value.stride())}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_described(v) for v in value)}]"
    return repr(value)


def _capturing(arguments):
    on_gpu = any(x.is_cuda for x in _compare.tensors(arguments))
    return on_gpu and torch.cuda.is_current_stream_capturing()


class Checked:
    """A kernel that raises RuntimeError where its results are not the reference's. Calls while a
    CUDA graph is captured are left alone, for a comparison waits."""

    def __init__(self, name, kernel, reference, in_place=()):
        self.name, self.kernel, self.reference = name, kernel, reference
        self.in_place = in_place  # indices of the arguments that are overwritten
        self.seen = set()

    def __call__(self, *arguments):
        call = f"{self.name}({', '.join(_described(a) for a in arguments)})"
        if call in self.seen or _capturing(arguments):
            return self.kernel(*arguments)
        self.seen.add(call)
        try:
            wide = _compare.exact(arguments)
            out = self.kernel(*arguments)
            want = self.reference(*wide)
        except torch.OutOfMemoryError:
            warnings.warn(f"ebb_kernels: {call} is too large to be compared", stacklevel=2)
            return self.kernel(*arguments)
        got = [arguments[i] for i in self.in_place] or _compare.results(out)
        want = [wide[i] for i in self.in_place] or _compare.results(want)
        self._compare(call, got, want, _compare.tolerance(arguments))
        return out

    def _compare(self, call, got, want, allowed):
        if allowed is None:
            return  # nothing that the kernels are for
        for i, (y, w) in enumerate(zip(got, want)):
            error = _compare.error(y, w, allowed)
            if error > 1:
                raise RuntimeError(
                    f"ebb_kernels: result {i} is {error:.3g} times the tolerance away from the"
                    f" reference's  {call}"
                )
