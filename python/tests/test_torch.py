"""Every function against plain torch in f64: results and gradients, on the CPU by ebb's own CPU
backend and on a GPU where there is one. Needs torch."""

import unittest

import torch

from ebb_kernels import _operators, reference
from cases import CASES, operands

ENGINE = _operators.register("ebb_kernels_test", engine_on_cpu=True)
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
# Unit roundoff, with room for sums in another order.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def flat(values):
    out = []
    for v in values:
        out.extend(v if isinstance(v, list) else [v])
    return out


def results(value):
    return value if isinstance(value, tuple) else (value,)


def close(test, got, want, dtype, what):
    test.assertEqual(got.shape, want.shape, what)
    scale = want.abs().max().clamp(min=1).item() if want.numel() else 1
    error = (got.double().cpu() - want.cpu()).abs().max().item() if want.numel() else 0
    test.assertLessEqual(error, TOLERANCE[dtype] * scale, what)


class Functions(unittest.TestCase):
    def check(self, case, dtype, device):
        what = f"{case} {dtype} {device}"
        op = ENGINE[1][case.function].forward
        given = operands(case, dtype, device, requires_grad=True)
        before = [x.detach().clone() for x in flat(given) if x is not None]
        got = results(op(*given, *case.attributes))
        exact = [
            [y.detach().double().requires_grad_(y.requires_grad) for y in x]
            if isinstance(x, list)
            else None if x is None else x.detach().double().requires_grad_(x.requires_grad)
            for x in given
        ]
        want = results(getattr(reference, case.function)(*exact, *case.attributes))
        for k, (y, w) in enumerate(zip(got, want)):
            self.assertTrue(y.is_contiguous(), what)
            close(self, y, w, dtype, f"{what} result {k}")
        pairs = [(y, w) for y, w in zip(got, want) if y.requires_grad]
        seeds = [torch.randn(y.shape, generator=torch.Generator().manual_seed(7)) for y, _ in pairs]
        wanted = [x for x in flat(given) if x is not None and x.requires_grad]
        exact_wanted = [x for x in flat(exact) if x is not None and x.requires_grad]
        grads = torch.autograd.grad(
            [y for y, _ in pairs], wanted, [s.to(y) for s, (y, _) in zip(seeds, pairs)]
        )
        exact_grads = torch.autograd.grad(
            [w for _, w in pairs], exact_wanted, [s.to(y).to(w) for s, (y, w) in zip(seeds, pairs)]
        )
        for k, (d, w) in enumerate(zip(grads, exact_grads)):
            self.assertEqual(d.dtype, wanted[k].dtype, what)
            close(self, d, w, dtype, f"{what} gradient {k}")
        for x, b in zip([x for x in flat(given) if x is not None], before):
            self.assertTrue(torch.equal(x, b), f"{what}: an operand was overwritten")

    def test_results_and_gradients_are_torchs(self):
        for device in DEVICES:
            for dtype in TOLERANCE:
                for case in CASES:
                    with self.subTest(f"{case} {dtype} {device}"):
                        self.check(case, dtype, device)


if __name__ == "__main__":
    unittest.main()
