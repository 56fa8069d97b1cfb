"""Every function against plain torch in f64: results and gradients, on the CPU by ebb's own CPU
backend and on a GPU where there is one. Needs torch."""

import unittest

import torch

from ebb_kernels import _compare, _operators, reference
from ebb_kernels._cases import CASES, operands

ENGINE = _operators.register("ebb_kernels_test", engine_on_cpu=True)
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


class Functions(unittest.TestCase):
    def check(self, case, dtype, device):
        what = f"{case} {dtype} {device}"
        op = ENGINE[1][case.function].forward

        def dense(*arguments):
            got = op(*arguments)
            for y in _compare.results(got):
                self.assertTrue(y.is_contiguous(), what)
            return got

        given = operands(case, dtype, device, requires_grad=True)
        tensors = [x for x in _compare.flat(given) if x is not None]
        before = [x.detach().clone() for x in tensors]
        function = getattr(reference, case.function)
        for part, error in _compare.of_call(dense, function, given, case.attributes).items():
            self.assertLessEqual(error, 1, f"{what} {part}")
        for x, b in zip(tensors, before):
            self.assertTrue(torch.equal(x, b), f"{what}: an operand was overwritten")

    def test_results_and_gradients_are_torchs(self):
        for device in DEVICES:
            for dtype in _compare.TOLERANCE:
                for case in CASES:
                    with self.subTest(f"{case} {dtype} {device}"):
                        self.check(case, dtype, device)

    def test_numbers_stand_for_attributes(self):
        for device in DEVICES:
            for case in CASES:
                with self.subTest(f"{case} {device}"):
                    function = ENGINE[1][case.function]
                    given = operands(case, torch.float32, device)
                    number = function.number_of(tuple(case.attributes))
                    got = function.numbered(*given, number)
                    want = function.forward(*given, *case.attributes)
                    for y, z in zip(_compare.results(got), _compare.results(want), strict=True):
                        self.assertTrue(torch.equal(y, z))

    def test_numbers_of_others_are_errors(self):
        x = torch.zeros(1, 8)
        for number in (-1, 1 << 40, ENGINE[1]["gated"].number_of(("silu", "second"))):
            with self.assertRaisesRegex(RuntimeError, "softmax"):
                ENGINE[1]["softmax"].numbered(x, number)


if __name__ == "__main__":
    unittest.main()
