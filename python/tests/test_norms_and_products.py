"""inject() on single layers: norms in the dialects of their libraries, linear layers with activations.
Needs torch; some need diffusers and transformers."""

import copy
import types
import unittest

import torch

import ebb_kernels as ek
from ebb_kernels.inject import norms
from models import counted, library, same

F = torch.nn.functional


class Norms(unittest.TestCase):
    def check(self, norm, x, served=True):
        want = norm(x)
        report = ek.inject(torch.nn.ModuleList([norm]))
        got, calls = counted(norm, x)
        self.assertEqual(bool(calls), served, report)
        self.assertEqual(got.dtype, want.dtype)
        self.assertTrue(torch.equal(got, want) or not got.is_floating_point() or served)
        same(self, got.float(), want.float(), 8e-3 if x.dtype != torch.float32 else 1e-6)

    def test_classes_are_matched_by_themselves_and_not_by_name(self):
        class FooRMSNorm(torch.nn.Module):
            def forward(self, x):
                return 3 * x

        normalization = library("diffusers.models.normalization")
        model = torch.nn.Sequential(
            FooRMSNorm(), torch.nn.RMSNorm(8), normalization.RMSNorm(8, eps=1e-6)
        )
        report = ek.inject(model)
        want = {"1": "torch_rms_norm", "2": "diffusers_rms_norm"}
        self.assertEqual(report.replaced, want)

    def test_a_subclass_is_not_its_base(self):
        class Doubled(torch.nn.RMSNorm):
            def forward(self, x):
                return 2 * super().forward(x)

        with self.assertRaises(ValueError):
            ek.inject(Doubled(8))

    def test_weights_and_eps_may_be_absent_or_zero(self):
        x = torch.randn(3, 8) * 1e-3
        for norm in (
            torch.nn.RMSNorm(8, elementwise_affine=False),
            torch.nn.RMSNorm(8),  # eps None
            torch.nn.RMSNorm(8, eps=0.0),
            torch.nn.LayerNorm(8, bias=False),
            torch.nn.LayerNorm(8, elementwise_affine=False),
        ):
            self.check(norm, x)
        # What eps None means for 16 bits differs between releases of torch.
        self.check(torch.nn.RMSNorm(8).bfloat16(), x.bfloat16(), served=False)

    def test_norms_over_several_dims_are_left(self):
        self.check(torch.nn.RMSNorm((4, 8), eps=1e-6), torch.randn(3, 4, 8), served=False)
        self.check(torch.nn.LayerNorm((4, 8)), torch.randn(3, 4, 8), served=False)

    def test_dialects_round_where_their_libraries_do(self):
        normalization = library("diffusers.models.normalization")

        def of(model, name):
            return getattr(library(f"transformers.models.{model}.modeling_{model}"), name)

        norms = [
            normalization.RMSNorm(64, eps=1e-6),
            normalization.RMSNorm(64, eps=1e-6, bias=True),
            normalization.RMSNorm(64, eps=1e-6, elementwise_affine=False),
            normalization.FP32LayerNorm(64, elementwise_affine=False),
            of("llama", "LlamaRMSNorm")(64),
            of("gemma", "GemmaRMSNorm")(64),
            of("olmo2", "Olmo2RMSNorm")(64),
            of("t5", "T5LayerNorm")(64),
        ]
        for norm in norms:
            for p in norm.parameters():
                torch.nn.init.normal_(p)
            for x_dtype in (torch.bfloat16, torch.float16, torch.float32):
                for w_dtype in (torch.float32, x_dtype):
                    own = copy.deepcopy(norm).to(w_dtype)
                    x = torch.randn(40, 64, generator=torch.Generator().manual_seed(1)).to(x_dtype)
                    with torch.no_grad():
                        want = own(x)
                        ek.inject(own)
                        got, calls = counted(own, x)
                    what = f"{type(norm).__name__} {x_dtype} {w_dtype}"
                    self.assertTrue(calls, what)
                    self.assertEqual(got.dtype, want.dtype, what)
                    if x_dtype != torch.float32 and got.dtype == x_dtype:
                        # Equal but where the sums' last bits meet a rounding.
                        self.assertLess((got != want).float().mean().item(), 2e-3, what)
                    same(self, got.float(), want.float(), 1e-2)

    def test_weights_are_read_at_each_call(self):
        norm = torch.nn.RMSNorm(8, eps=1e-6)
        ek.inject(norm)
        x = torch.randn(3, 8)
        norm.weight.data = torch.full((8,), 3.0)
        same(self, norm(x), F.rms_norm(x, (8,), norm.weight, 1e-6))
        norm.weight = torch.nn.Parameter(torch.full((8,), 5.0))
        same(self, norm(x), F.rms_norm(x, (8,), norm.weight, 1e-6))
        norm.bfloat16()
        y = norm(x.bfloat16())
        same(self, y, F.rms_norm(x.bfloat16(), (8,), norm.weight, 1e-6), 1e-2)

    def test_autocast_and_other_dtypes_are_the_modules_own(self):
        norm = torch.nn.LayerNorm(8, elementwise_affine=False)
        x = torch.randn(3, 8)
        with torch.autocast("cpu", torch.bfloat16):
            want = norm(x.bfloat16())
            ek.inject(norm)
            got, calls = counted(norm, x.bfloat16())
            self.assertEqual(calls, {})
            self.assertEqual(got.dtype, want.dtype)
        self.assertEqual(norm.double()(x.double()).dtype, torch.float64)

    def test_inputs_are_not_overwritten(self):
        norm = torch.nn.RMSNorm(8, eps=1e-6)
        ek.inject(norm)
        x = torch.randn(3, 8)
        before = x.clone()
        norm(x)
        self.assertTrue(torch.equal(x, before))

    def test_gradients_are_the_modules_own(self):
        x = torch.randn(3, 8, requires_grad=True)
        norm = torch.nn.RMSNorm(8, eps=1e-6)

        def gradients():
            return torch.autograd.grad(norm(x).square().sum(), [x, norm.weight])

        want = gradients()
        ek.inject(norm)
        for got, w in zip(gradients(), want):
            same(self, got, w)

    def test_copies_are_injected_and_apart(self):
        norm = torch.nn.RMSNorm(8, eps=1e-6)
        ek.inject(norm)
        other = copy.deepcopy(norm)
        torch.nn.init.constant_(other.weight, 2.0)
        x = torch.randn(3, 8)
        same(self, other(x), 2 * norm(x))


class Modulation(unittest.TestCase):
    """Norms with what stands around them in a block, against torch's operations one by one."""

    def test_values_and_dtypes_are_those_of_the_operations(self):
        x, branch = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
        scale, shift, gate = (torch.randn(2, 1, 8) for _ in range(3))
        for norm in (torch.nn.LayerNorm(8, 1e-6, False), torch.nn.RMSNorm(8, 1e-6, False)):
            ek.inject(norm)
            plain = type(norm).forward
            for of_x in (torch.float32, torch.bfloat16):
                for of_rows in (torch.float32, torch.bfloat16):
                    a, b = x.to(of_x), branch.to(of_x)
                    s, t, g = (m.to(of_rows) for m in (scale, shift, gate))
                    total = a + b * g
                    same(self, norms.residual(a, b, g), total, 1e-2)
                    want = plain(norm, a) * (1 + s) + t
                    same(self, norms.modulated(norm, a, s, t), want, 2e-2)
                    y, got = norms.added(norm, a, b, g, s, t)
                    same(self, got, total, 1e-2)
                    same(self, y, plain(norm, total) * (1 + s) + t, 4e-2)
                    y, got = norms.added(norm, a, b, g, s, t, wide=True)
                    self.assertEqual({y.dtype, got.dtype}, {of_x})


class Products(unittest.TestCase):
    def layers(self):
        activations = library("diffusers.models.activations")
        yield activations.GEGLU(8, 16), "linear_gated"
        yield activations.SwiGLU(8, 16), "linear_gated"
        yield activations.GELU(8, 16, approximate="tanh"), "linear_act"
        yield activations.GELU(8, 16), "linear_act"
        yield activations.ApproximateGELU(8, 16), "linear_act"

    def test_halves_and_activations_are_the_layers_own(self):
        x = torch.randn(3, 8)
        for layer, op in self.layers():
            with torch.no_grad():
                want = layer(x)
                ek.inject(layer)
                got, calls = counted(layer, x)
            self.assertEqual(calls, {op: 1})
            same(self, got, want)

    def test_layers_of_transformers(self):
        activations = library("transformers.activations").ACT2FN
        for name, served in (
            ("silu", True),
            ("gelu", True),
            ("gelu_pytorch_tanh", True),
            ("quick_gelu", True),
            ("gelu_new", True),
            ("relu2", False),
        ):
            config = types.SimpleNamespace(
                hidden_size=8, intermediate_size=16, mlp_bias=False, hidden_act=name
            )
            llama = library("transformers.models.llama.modeling_llama").LlamaMLP(config)
            phi3 = library("transformers.models.phi3.modeling_phi3").Phi3MLP(config)
            self.assertIn(name, activations)
            x = torch.randn(3, 8)
            for layer, op in ((llama, "gated"), (phi3, "linear_gated")):
                with torch.no_grad():
                    want = layer(x)
                if not served:
                    with self.assertRaisesRegex(ValueError, "its activation is not one of ebb's"):
                        ek.inject(layer)
                    continue
                ek.inject(layer)
                got, calls = counted(layer, x)
                self.assertEqual(calls, {op: 1})
                same(self, got, want)

    def test_other_linear_layers_and_hooks_are_called(self):
        class Adapted(torch.nn.Linear):
            def forward(self, x):
                return super().forward(x) + 1

        x = torch.randn(3, 8)
        for layer, _ in self.layers():
            layer.proj.__class__ = Adapted
            with torch.no_grad():
                want = layer(x)
                ek.inject(layer, "modules")
                got, calls = counted(layer, x)
                self.assertFalse(calls.keys() & {"linear_gated", "linear_act"})
                same(self, got, want)
                layer.proj.__class__ = torch.nn.Linear
                layer.proj.register_forward_hook(lambda module, args, out: out + 1)
                same(self, layer(x), want)


if __name__ == "__main__":
    unittest.main()
