"""Injected models on ebb's own CPU backend instead of plain torch: the calls that recipes make, with
their layouts, are the engine's to take. Needs a library with that backend, torch, and the models'
libraries."""

import unittest
from unittest import mock

import torch

import ebb_kernels as ek
from ebb_kernels import _operators, ops
from models import DIFFUSION, LANGUAGE, Tiny
from test_inject import TOLERANCE, each

_LIBRARY, ENGINE = _operators.register("ebb_kernels_models", engine_on_cpu=True)


def on_engine():
    return mock.patch.multiple(ops, **{f"_{name}": f.forward for name, f in ENGINE.items()})


class Engine(unittest.TestCase):
    def setUp(self):
        try:
            ENGINE["softmax"].forward(torch.zeros(1, 1))
        except NotImplementedError:
            self.skipTest("the library has no CPU backend")

    @each(DIFFUSION + LANGUAGE)
    def test_results_and_gradients(self, make):
        def run(tiny):
            tiny.model.zero_grad()
            out = tiny()
            out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype))
            found = {n: p.grad for n, p in tiny.model.named_parameters() if p.grad is not None}
            return out.detach(), found

        for dtype in (torch.float32, torch.bfloat16):
            tiny = Tiny(make, dtype)
            want, want_gradients = run(tiny)
            with on_engine():
                ek.inject(tiny.model)
                got, got_gradients = run(tiny)
            error = (got - want).abs().max() / want.abs().max()
            self.assertLess(error, TOLERANCE[dtype], dtype)
            if dtype == torch.float32:
                for name, g in want_gradients.items():
                    error = (got_gradients[name] - g).abs().max() / g.abs().max().clamp(min=1e-3)
                    self.assertLess(error, 1e-3, name)


if __name__ == "__main__":
    unittest.main()
