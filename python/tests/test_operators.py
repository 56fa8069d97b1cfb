"""The operators as torch sees them: opcheck, torch.compile, autocast, dynamic shapes, empty tensors,
errors. On a GPU where there is one, else on the CPU (there by the reference). Needs torch."""

import unittest
from unittest import mock

import torch
from torch._dynamo.compiled_autograd import _enable
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

import ebb_kernels as ek
from ebb_kernels import _library
from ebb_kernels._operators import functions
from ebb_kernels._cases import CASES, operands

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Operators(unittest.TestCase):
    def test_opcheck(self):
        seen = {}
        for case in CASES:
            if seen.setdefault(case.function, 0) >= 2 or case.layouts:
                continue
            seen[case.function] += 1
            with self.subTest(str(case)):
                given = operands(case, torch.float32, DEVICE, requires_grad=True)
                torch.library.opcheck(functions[case.function].forward, (*given, *case.attributes))
        self.assertEqual(set(seen), set(functions) - {"adamw"})

    def test_adamw_is_torchs(self):
        torch.manual_seed(0)
        p = torch.randn(33, 7, device=DEVICE)
        q = torch.nn.Parameter(p.clone())
        m, v = torch.zeros_like(p), torch.zeros_like(p)
        theirs = torch.optim.AdamW([q], lr=1e-2, weight_decay=0.1)
        for step in range(1, 4):
            grad = torch.randn(33, 7, device=DEVICE)
            q.grad = grad.clone()
            theirs.step()
            numbers = torch.tensor([1e-2, 1 - 0.9**step, 1 - 0.999**step, 1.0], device=DEVICE)
            ek.adamw_(p, m, v, grad, numbers, weight_decay=0.1)
        torch.testing.assert_close(p, q.detach(), rtol=1e-5, atol=1e-6)

    def test_what_adamw_overwrites_is_seen_by_autograd(self):
        p = torch.randn(8, device=DEVICE)
        w = torch.ones(8, device=DEVICE, requires_grad=True)
        y = (p * w).sum()
        numbers = torch.tensor([1e-2, 0.1, 1e-3, 1.0], device=DEVICE)
        ek.adamw_(p, torch.zeros_like(p), torch.zeros_like(p), torch.ones_like(p), numbers)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.backward()

    def test_gradients_of_unused_results_are_not_made(self):
        x, w = (torch.randn(4, 64, device=DEVICE, requires_grad=True) for _ in range(2))
        for index in (0, 1):
            got = ek.add_norm(x, w, kind="rms")[index].sum()
            torch.autograd.grad(got, (x, w))

    def test_the_gradient_of_a_sum_is_handed_out(self):
        a, g, b = (torch.randn(4, 64, device=DEVICE, requires_grad=True) for _ in range(3))
        row = torch.randn(64, device=DEVICE, requires_grad=True)
        wide = torch.randn(4, 64, device=DEVICE, dtype=torch.float64 if DEVICE == "cpu" else
                           torch.bfloat16, requires_grad=True)
        dy = torch.randn(4, 64, device=DEVICE)
        inputs = (a, g, b, row, wide)
        y = ek.map("a + g * b + row + wide", torch.float32, a=a, g=g, b=b, row=row, wide=wide)
        got = torch.autograd.grad(y, inputs, dy)
        self.assertEqual(got[0].data_ptr(), dy.data_ptr())
        for x, dx, want in zip(inputs, got, (dy, dy * b, dy * g, dy.sum(0), dy)):
            self.assertEqual((dx.shape, dx.dtype), (x.shape, x.dtype))
            torch.testing.assert_close(dx, want.to(x.dtype))
        y = ek.map("a + g", a=a, g=g)
        for dx in torch.autograd.grad(y, (a, g), dy):
            self.assertEqual(dx.data_ptr(), dy.data_ptr())

    def test_autocast_leaves_float64(self):
        x, w = (torch.randn(4, 64, dtype=torch.float64) for _ in range(2))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual(ek.linear_act(x, w).dtype, torch.float64)

    def test_compiles_as_one_graph_with_gradients(self):
        def block(x, scale, shift, gate, weight, q, cos, sin):
            y, x = ek.add_norm(x, x.sin(), gate, scale, shift, kind="rms")
            y = ek.linear_gated(y, weight, act="silu")
            q, k = ek.qk_norm_rope(q, q, cos=cos, sin=sin)
            o = ek.attention(q, k, k, causal=True)
            return ek.map("silu(a) * b", a=y, b=x).sum() + o.square().sum()

        torch.manual_seed(0)
        shapes = [(2, 9, 64), (2, 64), (2, 64), (2, 64), (128, 64), (2, 9, 2, 64), (9, 64), (9, 64)]
        inputs = [torch.randn(s, device=DEVICE, requires_grad=True) for s in shapes]
        with torch.no_grad():
            tables = [t.repeat_interleave(2, -1) for t in torch.randn(2, 9, 32, device=DEVICE)]
        inputs[-2:] = tables
        want = torch.autograd.grad(block(*inputs), inputs[:-2])
        for dynamic in (False, True):
            torch._dynamo.reset()
            compiled = torch.compile(block, fullgraph=True, dynamic=dynamic, backend="aot_eager")
            got = torch.autograd.grad(compiled(*inputs), inputs[:-2])
            for g, w in zip(got, want):
                torch.testing.assert_close(g, w)

    def test_backward_compiles_as_one_graph(self):
        x = torch.randn(2, 8, device=DEVICE, requires_grad=True)
        q = torch.randn(1, 4, 2, 64, device=DEVICE, requires_grad=True)
        for call, given in (
            (lambda: ek.rms_norm(x), x),
            (lambda: ek.map("2 * x + y", x=x, y=x), x),
            (lambda: ek.attention(q, q, q), q),
        ):
            (want,) = torch.autograd.grad(call().square().sum(), given)
            torch._dynamo.reset()
            given.grad = None
            with _enable(torch.compile(backend="aot_eager", fullgraph=True)):
                call().square().sum().backward()
            torch.testing.assert_close(given.grad, want)

    def test_another_batch_is_no_new_graph(self):
        torch._dynamo.reset()
        counter = CompileCounter()
        f = torch.compile(
            lambda x, w: ek.rms_norm(x, w, rounding="llama"), backend=counter, dynamic=True
        )
        for batch in (2, 3, 5, 8):
            f(torch.randn(batch, 4, 64, device=DEVICE), torch.randn(64, device=DEVICE))
        self.assertEqual(counter.frame_count, 1)

    def test_fakes_have_the_strides_of_results(self):
        for case in CASES:
            with self.subTest(str(case)):
                given = operands(case, torch.float32, DEVICE)
                op = functions[case.function].forward
                real = op(*given, *case.attributes)
                with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
                    fakes = [
                        [mode.from_tensor(y) for y in x]
                        if isinstance(x, list)
                        else None if x is None else mode.from_tensor(x)
                        for x in given
                    ]
                    fake = op(*fakes, *case.attributes)
                for r, f in zip(
                    real if isinstance(real, tuple) else [real],
                    fake if isinstance(fake, tuple) else [fake],
                ):
                    self.assertEqual((r.shape, r.stride(), r.dtype), (f.shape, f.stride(), f.dtype))

    def test_autocast_casts_products_and_not_norms(self):
        x, w = torch.randn(4, 64, device=DEVICE), torch.randn(32, 64, device=DEVICE)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            self.assertEqual(ek.linear_act(x, w).dtype, torch.bfloat16)
            self.assertEqual(ek.rms_norm(x).dtype, torch.float32)

    def test_dispatch_modes_see_the_operator(self):
        class Seen(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                self.name = function.name()
                return function(*arguments, **(named or {}))

        with Seen() as mode:
            ek.rms_norm(torch.zeros(2, 8, device=DEVICE))
        self.assertEqual(mode.name, "ebb_kernels::rms_norm")

    def test_fake_tensors(self):
        with torch._subclasses.FakeTensorMode() as mode:
            x = mode.from_tensor(torch.zeros(2, 8, device=DEVICE))
            self.assertEqual(ek.rms_norm(x).shape, (2, 8))
        self.assertEqual(ek.rms_norm(x).shape, (2, 8))  # its mode is its own

    def test_wrong_arguments_are_torchs_errors(self):
        x = torch.zeros(2, 8, device=DEVICE)
        for call in (
            lambda: ek.rms_norm(3.0),
            lambda: ek.rms_norm(x, 2.0),
            lambda: ek.map("x", x=3.0),
            lambda: ek.rms_norm(x, eps=[1.0]),
            lambda: ek.rms_norm(x, eps="1"),
        ):
            with self.assertRaisesRegex(RuntimeError, "ebb_kernels::.* Expected a value of type"):
                call()

    def test_attributes_beyond_those_that_have_numbers(self):
        x = torch.randn(2, 8, device=DEVICE)
        with mock.patch.object(_library, "number_of", return_value=None):
            y = ek.rms_norm(x, eps=0.123456)
        self.assertTrue(torch.equal(y, ek.rms_norm(x, eps=0.123456)))

    def test_empty_tensors(self):
        w = torch.ones(64, device=DEVICE, requires_grad=True)
        y = ek.rms_norm(torch.zeros(0, 64, device=DEVICE), w)
        self.assertEqual(y.shape, (0, 64))
        y.sum().backward()
        self.assertTrue(torch.equal(w.grad, torch.zeros_like(w)))

    def test_eps_of_none_is_torchs(self):
        x = torch.randn(3, 64, device=DEVICE) * 1e-3
        torch.testing.assert_close(
            ek.rms_norm(x, eps=None), torch.nn.functional.rms_norm(x, (64,)), rtol=1e-5, atol=1e-6
        )

    def test_group_norm_keeps_channels_last(self):
        x = torch.randn(2, 64, 5, 6, device=DEVICE).to(memory_format=torch.channels_last)
        w, b = torch.randn(64, device=DEVICE), torch.randn(64, device=DEVICE)
        y = ek.group_norm(x, 8, w, b, act="silu")
        want = torch.nn.functional.silu(torch.nn.functional.group_norm(x, 8, w, b))
        torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-5)
        self.assertTrue(y.is_contiguous(memory_format=torch.channels_last))

    def test_second_derivatives_are_errors(self):
        x = torch.randn(3, 64, device=DEVICE, requires_grad=True)
        (d,) = torch.autograd.grad(ek.rms_norm(x).square().sum(), x, create_graph=True)
        with self.assertRaises(RuntimeError):
            torch.autograd.grad(d.sum(), x)


if __name__ == "__main__":
    unittest.main()
