"""Numbers in place of attributes: who sees the call must see the attributes themselves, as tracers,
compilers, modes and subclasses of tensors do. On the CPU, there by the reference. Needs torch."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

import ebb_kernels as ek
import ebb_kernels.flops  # noqa: F401
from ebb_kernels import _compare
from ebb_kernels._cases import CASES, operands
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


class HostTime(unittest.TestCase):
    def test_a_call_is_two_functions_of_python(self):
        x, w, entered = torch.randn(2, 8), torch.randn(8), []

        def note(frame, event, _):
            if event == "call" and Path(frame.f_code.co_filename).name == "ops.py":
                entered.append(frame.f_code.co_name)

        ek.rms_norm(x, w)  # the first gets the number
        sys.setprofile(note)
        try:
            ek.rms_norm(x, w)
        finally:
            sys.setprofile(None)
        self.assertEqual(entered, ["rms_norm", "call"])


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

    def test_a_default_device_sees_nothing(self):
        x, seen = torch.randn(2, 8), []
        own = DeviceContext.__torch_function__

        def noted(self, function, types, arguments=(), named=None):
            seen.append(str(function))
            return own(self, function, types, arguments, named)

        want = Norm()(x)
        for device in ("cpu", "meta"):
            for grad in (True, False):
                with self.subTest(device=device, gradients=grad), torch.device(device):
                    with mock.patch.object(DeviceContext, "__torch_function__", noted):
                        leaf = x.detach().requires_grad_(grad)
                        seen.clear()
                        y = Norm()(leaf)
                        self.assertEqual(seen, [])
                    self.assertTrue(torch.equal(y.detach(), want))
                    self.assertEqual(torch.empty(1).device.type, device)
                    self.assertTrue(torch.equal(Norm()(Wrapper(x)), want))
                    if grad:
                        y.square().sum().backward()
                        self.assertEqual(leaf.grad.device, x.device)

    def test_every_function_and_gradient_under_a_default_device(self):
        for case in CASES:
            with self.subTest(str(case)):
                op = functions[case.function].forward
                given = operands(case, torch.float32, "cpu", requires_grad=True)
                leaves = [t for t in _compare.tensors(given) if t.requires_grad]

                def run():
                    y = [v for v in _compare.results(op(*given, *case.attributes))
                         if v.requires_grad]
                    return (*y, *torch.autograd.grad([v.sum() for v in y], leaves))

                want = run()
                with torch.device("meta"):
                    got = run()
                for g, w in zip(got, want, strict=True):
                    self.assertTrue(torch.equal(g, w))

    def test_constants_of_formulas_are_on_no_default_device(self):
        x = torch.randn(3)
        for formula in ("exp(2) * x", "where(1 > 0, 2, 3)", "max(1, 2) + x"):
            want = ek.map(formula, x=x)
            with torch.device("meta"):
                self.assertTrue(torch.equal(ek.map(formula, x=x), want), formula)

    def test_a_mode_behind_a_default_device_sees_the_operator(self):
        seen = []

        class Mode(TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), named=None):
                seen.append(str(function))
                return function(*arguments, **(named or {}))

        class Subclass(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, arguments=(), named=None):
                seen.append(str(function))
                return super().__torch_function__(function, types, arguments, named or {})

        x = torch.randn(2, 8)
        for modes in ((torch.device("cpu"), Mode()), (Mode(), torch.device("cpu"))):
            seen.clear()
            with modes[0], modes[1]:
                Norm()(x)
            self.assertIn("ebb_kernels.rms_norm.default", seen)
        seen.clear()
        with torch.device("cpu"):
            Norm()(x.as_subclass(Subclass))
            torch.jit.trace(Norm(), x)
        self.assertIn("ebb_kernels.rms_norm.default", seen)

    def test_flops_are_counted(self):
        x, w = torch.randn(3, 16), torch.randn(32, 16)
        q = torch.randn(1, 5, 2, 64)
        for call, flops in (
            (lambda: ek.linear_act(x, w), 2 * 3 * 16 * 32),
            (lambda: ek.linear_gated(x, w), 2 * 3 * 16 * 32),
            (lambda: ek.attention(q, q, q), 4 * 2 * 5 * 5 * 64),
            (lambda: ek.rms_norm(x), 0),
        ):
            want = call()
            with FlopCounterMode(display=False) as counter:
                got = call()
            self.assertTrue(torch.equal(got, want))
            self.assertEqual(counter.get_total_flops(), flops)
        for leaf, call, flops in (
            (w, lambda: ek.linear_act(x, w), 2 * 2 * 3 * 16 * 32),
            (q, lambda: ek.attention(q, q, q), (2 + 5) * 2 * 2 * 5 * 5 * 64),
        ):
            leaf.requires_grad_()
            with FlopCounterMode(display=False) as counter:
                call().sum().backward()
            self.assertEqual(counter.get_total_flops(), flops)

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
