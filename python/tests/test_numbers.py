"""Numbers in place of attributes: who sees the call must see the attributes themselves, as tracers,
compilers, modes and subclasses of tensors do. On the CPU, there by the reference. Needs torch."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import ebb_kernels as ek
from ebb_kernels._operators import functions


class Norm(torch.nn.Module):
    def forward(self, x):
        return ek.rms_norm(x, eps=0.25)


class Wrapper(torch.Tensor):
    """Notes the operators that it meets."""

    seen = []
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, op, types, arguments=(), named=None):
        cls.seen.append(str(op))
        return op(*tree_map(lambda a: getattr(a, "inner", a), arguments), **(named or {}))


class Failing(TorchDispatchMode):
    def __init__(self, error):
        super().__init__()
        self.error, self.calls = error, 0

    def __torch_dispatch__(self, op, types, arguments=(), named=None):
        self.calls += 1
        raise self.error


class Numbers(unittest.TestCase):
    def setUp(self):
        ek.rms_norm(torch.ones(1, 8), eps=0.25)  # these attributes have a number

    def test_plain_calls_have_them(self):
        self.assertIn((0.25, 0.0, "once", ""), functions["rms_norm"].numbers)

    def test_traces_are_the_same_in_another_process(self):
        x = torch.randn(2, 8)
        for grad in (True, False):
            with self.subTest(gradients=grad), torch.set_grad_enabled(grad):
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / "norm.pt"
                    torch.jit.trace(Norm(), x).save(file)
                    # There the number is that of other attributes.
                    script = (
                        "import sys, torch, ebb_kernels as ek\n"
                        "ek.rms_norm(torch.ones(1, 8), eps=4.0)\n"
                        "x = torch.tensor(eval(sys.argv[2]))\n"
                        "print(torch.jit.load(sys.argv[1])(x).tolist())\n"
                    )
                    done = subprocess.run(
                        [sys.executable, "-c", script, file, str(x.tolist())],
                        capture_output=True, text=True, check=False,
                    )
                self.assertEqual(done.returncode, 0, done.stderr)
                torch.testing.assert_close(torch.tensor(eval(done.stdout)), Norm()(x))

    def test_graphs_have_the_operator(self):
        x = torch.randn(2, 8)
        for grad in (True, False):
            with self.subTest(gradients=grad), torch.set_grad_enabled(grad):
                for graph in (
                    torch.fx.symbolic_trace(Norm()).graph,
                    make_fx(Norm())(x).graph,
                    torch.export.export(Norm(), (x,), strict=True).graph,
                    torch.export.export(Norm(), (x,), strict=False).graph,
                ):
                    called = [str(n.target) for n in graph.nodes if n.op == "call_function"]
                    self.assertEqual(called, ["ebb_kernels.rms_norm.default"])

    def test_subclasses_and_modes_of_functions_see_the_operator(self):
        x, want = torch.randn(2, 8), []

        class Mode(TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), named=None):
                if isinstance(function, torch._ops.OpOverload):
                    want.append(str(function))
                return function(*arguments, **(named or {}))

        for grad in (True, False):
            with self.subTest(gradients=grad), torch.set_grad_enabled(grad):
                Wrapper.seen, want[:] = [], []
                self.assertTrue(torch.equal(Norm()(Wrapper(x)), Norm()(x)))
                self.assertEqual(Wrapper.seen, ["ebb_kernels.rms_norm.default"])
                with Mode():
                    Norm()(x)
                self.assertEqual(want, ["ebb_kernels.rms_norm.default"])

    def test_what_compilers_see_overwritten(self):
        def step(p, m, v, grad, numbers):
            ek.adamw_(p, m, v, grad, numbers, weight_decay=0.1)

        numbers = torch.tensor([1e-2, 0.1, 1e-3, 1.0])
        for backend in ("eager", "aot_eager"):
            for grad in (True, False):
                with self.subTest(gradients=grad), torch.set_grad_enabled(grad):
                    torch._dynamo.reset()
                    given = [torch.ones(8), torch.zeros(8), torch.zeros(8), torch.ones(8)]
                    want = [t.clone() for t in given]
                    step(*want, numbers)
                    torch.compile(step, fullgraph=True, backend=backend)(*given, numbers)
                    for got, w in zip(given, want):
                        torch.testing.assert_close(got, w)
                    self.assertLess(given[0].max(), 1)

    def test_an_operator_that_fails_is_not_run_again(self):
        x = torch.randn(2, 8, requires_grad=True)
        for error in (TypeError("no"), AttributeError("no")):
            for grad in (True, False):
                with self.subTest(gradients=grad), torch.set_grad_enabled(grad):
                    with Failing(error) as mode, self.assertRaises(type(error)):
                        Norm()(x)
                    self.assertEqual(mode.calls, 1)

    def test_fake_tensors_of_modes_that_ended(self):
        with FakeTensorMode() as mode:
            x = mode.from_tensor(torch.zeros(2, 8))
        for grad in (True, False):
            with self.subTest(gradients=grad), torch.set_grad_enabled(grad):
                self.assertEqual(Norm()(x).shape, (2, 8))

    def test_texts_are_whole(self):
        x = torch.randn(2, 8)
        for formula in ("2 * x", "2 * x\0 + 1"):
            number = functions["map"].number_of((formula, "x", ""))
            self.assertEqual(number is None, "\0" in formula)
        with self.assertRaises((RuntimeError, ValueError, SyntaxError)):
            ek.map("2 * x\0 + 1", x=x)


if __name__ == "__main__":
    unittest.main()
