"""The functions under torch.func and what else takes derivatives: equal to autograd, or one error.
On a GPU where there is one, else on the CPU (there by the reference). Needs torch."""

import unittest

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import ebb_kernels as ek
from ebb_kernels import _compare
from ebb_kernels._cases import CASES, operands
from ebb_kernels._operators import functions

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FORWARD_MODE = "ebb_kernels: rms_norm has no derivative in forward mode"
SECOND = "ebb_kernels: rms_norm has no second derivative"


def random(*shape):
    return torch.randn(shape, device=DEVICE)


def total(y):
    return sum((v * torch.linspace(-1, 1, v.numel(), device=v.device).view(v.shape)).sum()
               for v in _compare.results(y))


class Calls(TorchDispatchMode):
    """Counts those of ebb's operators."""

    count = 0

    def __torch_dispatch__(self, op, types, arguments=(), named=None):
        self.count += op.namespace == "ebb_kernels"
        return op(*arguments, **(named or {}))


class Call:
    """A case of a function as a function of the tensors that have gradients."""

    def __init__(self, case):
        self.op, self.attributes = functions[case.function].forward, case.attributes
        self.given = operands(case, torch.float32, DEVICE, requires_grad=True)
        self.flat = [x for x in _compare.tensors(self.given) if x.requires_grad]
        self.constant = functions[case.function].entry.constant

    def __call__(self, *flat):
        left = iter(flat)

        def put(x):
            if isinstance(x, list):
                return [put(y) for y in x]
            return next(left) if x is not None and x.requires_grad else x

        y = self.op(*(put(x) for x in self.given), *self.attributes)
        y = _compare.results(y)
        return tuple(v for i, v in enumerate(y) if i not in self.constant)

    def detached(self):
        return [x.detach() for x in self.flat]


def each_case(test):
    def run(self):
        for case in CASES:
            with self.subTest(str(case)):
                test(self, Call(case))

    return run


class Transforms(unittest.TestCase):
    def close(self, got, want):
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)

    @each_case
    def test_grad_and_vjp_are_autograds(self, call):
        want = torch.autograd.grad(total(call(*call.flat)), call.flat)
        x, numbers = call.detached(), tuple(range(len(call.flat)))
        self.close(torch.func.grad(lambda *x: total(call(*x)), numbers)(*x), want)
        y, vjp = torch.func.vjp(lambda *x: total(call(*x)), *x)
        self.close((y,), (total(call(*x)),))
        self.close(vjp(torch.ones_like(y)), want)

    @each_case
    def test_vmap_is_a_call_a_sample(self, call):
        x = [torch.stack([v, 2 * v + 1], i % (v.dim() + 1)) for i, v in enumerate(call.detached())]
        dims = tuple(i % v.dim() for i, v in enumerate(x))
        samples = [[v.select(d, i) for v, d in zip(x, dims)] for i in range(2)]
        want = [torch.stack(y) for y in zip(*(call(*s) for s in samples))]
        self.close(torch.vmap(call, dims)(*x), want)

    def test_vmap_over_rows_is_one_call(self):
        x, w, wide = random(3, 5, 64), random(64), random(128, 64)
        for call, dims in (
            (lambda x: ek.rms_norm(x, w), 0),
            (lambda x: ek.layer_norm(x, w), 1),
            (lambda x: ek.softmax(x), 0),
            (lambda x: ek.gated(x, x), 1),
            (lambda x: ek.linear_gated(x, wide), 0),
        ):
            with Calls() as calls:
                got = torch.vmap(call, dims)(x)
            self.assertEqual(calls.count, 1)
            self.close([got], [call(x.movedim(dims, 0))])

    @each_case
    def test_gradients_of_each_sample(self, call):
        """vmap over grad: of the first operand's samples, the others being shared."""
        first, *rest = call.detached()
        x = torch.stack([first, 0.5 * first, 1 - first])
        numbers = tuple(range(len(call.flat)))
        grad = torch.func.grad(lambda *x: total(call(*x)), numbers)
        got = torch.vmap(grad, (0,) + (None,) * len(rest))(x, *rest)
        want = [torch.stack(g) for g in zip(*(grad(sample, *rest) for sample in x))]
        self.close(got, want)

    def test_public_functions_see_transforms(self):
        x, w = random(3, 5, 64), random(64)
        want = torch.stack([ek.rms_norm(row, w) for row in x])
        self.close([torch.vmap(lambda row: ek.rms_norm(row, w))(x)], [want])
        weight = random(128, 64)
        for f in (
            lambda x: ek.linear_gated(x, weight, act="silu").square().sum(),
            lambda x: ek.linear_act(x, weight).square().sum(),
            lambda x: ek.map("silu(x) * 2", x=x).sum(),
            lambda x: ek.attention(x[:, :, None], x[:, :, None], x[:, :, None]).square().sum(),
        ):
            leaf = x.clone().requires_grad_()
            (want,) = torch.autograd.grad(f(leaf), leaf)
            self.close([torch.func.grad(f)(x)], [want])
            with torch.no_grad():
                self.close([torch.func.grad(f)(x)], [want])

    def test_jacobians(self):
        x = random(2, 8)
        want = torch.autograd.functional.jacobian(ek.softmax, x)
        with self.assertRaisesRegex(RuntimeError, "ebb_kernels::softmax_backward"):  # torch's own
            torch.autograd.functional.jacobian(ek.softmax, x, vectorize=True)
        for got in (
            torch.func.jacrev(ek.softmax)(x),
            torch.autograd.functional.jacobian(lambda x: torch.softmax(x, -1), x),
        ):
            self.close([got], [want])
        v = torch.ones_like(x)
        self.close(torch.autograd.functional.vjp(ek.softmax, x, v),
                   torch.autograd.functional.vjp(lambda x: torch.softmax(x, -1), x, v))

    def test_transforms_within_autograd(self):
        """What torch.func.vjp makes of x is recorded for x's own gradient."""
        x, w = random(3, 8), random(8).requires_grad_()
        y, vjp = torch.func.vjp(lambda x: ek.rms_norm(x, w), x)
        (got,) = torch.autograd.grad(y.square().sum(), w)
        (want,) = torch.autograd.grad(ek.rms_norm(x, w).square().sum(), w)
        self.close([got], [want])
        with self.assertRaisesRegex(RuntimeError, SECOND):
            torch.autograd.grad(vjp(torch.ones_like(x))[0].sum(), w)

    def test_checkpoints(self):
        x, w = random(3, 64).requires_grad_(), random(64).requires_grad_()
        want = torch.autograd.grad(ek.rms_norm(x, w).square().sum(), (x, w))
        for reentrant in (False, True):
            y = checkpoint(ek.rms_norm, x, w, use_reentrant=reentrant)
            y.square().sum().backward()
            self.close([x.grad, w.grad], want)
            x.grad = w.grad = None

    def test_no_forward_mode(self):
        x, t = random(2, 8), random(2, 8)
        with self.assertRaisesRegex(RuntimeError, FORWARD_MODE):
            torch.func.jvp(ek.rms_norm, (x,), (t,))
        with self.assertRaisesRegex(RuntimeError, FORWARD_MODE):
            torch.func.jacfwd(ek.rms_norm)(x)
        with self.assertRaisesRegex(RuntimeError, FORWARD_MODE):
            torch.func.hessian(lambda x: ek.rms_norm(x).square().sum())(x)
        with forward_ad.dual_level():
            self.assertTrue(torch.equal(ek.rms_norm(x), ek.rms_norm(x.clone())))
            dual = forward_ad.make_dual(x, t)
            for grad in (True, False):
                with torch.set_grad_enabled(grad):
                    with self.assertRaisesRegex(RuntimeError, FORWARD_MODE):
                        ek.rms_norm(dual)

    def test_no_second_derivative(self):
        x = random(2, 8)

        def loss(x):
            return ek.rms_norm(x).square().sum()

        for twice in (
            lambda: torch.func.grad(lambda x: torch.func.grad(loss)(x).sum())(x),
            lambda: torch.autograd.functional.hessian(loss, x),
            lambda: torch.autograd.functional.hvp(loss, x, x),
            lambda: torch.autograd.functional.jvp(ek.rms_norm, x, x),
        ):
            with self.assertRaisesRegex(RuntimeError, SECOND):
                twice()

    def test_what_overwrites_has_no_vmap(self):
        p, numbers = random(3, 8), torch.tensor([1e-2, 0.1, 1e-3, 1.0], device=DEVICE)
        with self.assertRaisesRegex(RuntimeError, "ebb_kernels: adamw overwrites its operands"):
            torch.vmap(lambda p: ek.adamw_(p, p.clone(), p.clone(), p.clone(), numbers))(p)

    def test_transforms_compile(self):
        x, w = random(2, 8), random(8)
        grad = torch.func.grad(lambda x: ek.rms_norm(x, w).square().sum())
        torch._dynamo.reset()
        compiled = torch.compile(grad, backend="aot_eager", fullgraph=True)
        self.close([compiled(x)], [grad(x)])


if __name__ == "__main__":
    unittest.main()
