"""Modules, layers for kernelize() and the Hub's variant. Needs torch; some need transformers and the
Hub's `kernels`."""

import json
import tempfile
import types
import unittest
from pathlib import Path

import torch

import ebb_kernels as ek
from ebb_kernels import hub
from models import Calls, library


def close(test, got, want):
    test.assertEqual(got.shape, want.shape)
    test.assertLess((got - want).abs().max().item(), 1e-5 * want.abs().max().item())


class Modules(unittest.TestCase):
    def pair(self, ours, theirs, x):
        for p in theirs.parameters():
            torch.nn.init.normal_(p)
        ours.load_state_dict(theirs.state_dict())
        close(self, ours(x), theirs(x))

    def test_state_and_results_are_torchs(self):
        x = torch.randn(3, 5, 8)
        self.pair(ek.nn.RMSNorm(8, 1e-5), torch.nn.RMSNorm(8, 1e-5), x)
        self.pair(ek.nn.RMSNorm(8, 1e-5, False), torch.nn.RMSNorm(8, 1e-5, False), x)
        self.pair(ek.nn.LayerNorm(8), torch.nn.LayerNorm(8), x)
        self.pair(ek.nn.LayerNorm(8, bias=False), torch.nn.LayerNorm(8, bias=False), x)
        activations = library("diffusers.models.activations")
        geglu = activations.GEGLU(8, 16)
        ours = ek.nn.GatedLinear(8, 16)
        ours.load_state_dict(geglu.proj.state_dict())
        close(self, ours(x), geglu(x))

    def test_modulation_with_and_without_a_branch(self):
        x, branch, scale, shift, gate = (torch.randn(2, 5, 8) for _ in range(5))
        plain = torch.nn.functional.layer_norm
        norm = ek.nn.AdaNorm()
        close(self, norm(x, scale, shift), plain(x, (8,), eps=1e-6) * (1 + scale) + shift)
        y, total = norm(x, scale, shift, branch, gate)
        close(self, total, x + gate * branch)
        close(self, y, plain(total, (8,), eps=1e-6) * (1 + scale) + shift)


class Layers(unittest.TestCase):
    """kernelize() binds a layer's forward to a module of the library."""

    def bound(self, layer, module):
        return types.MethodType(layer.forward, module)

    def test_they_compute_what_they_replace(self):
        llama = library("transformers.models.llama.modeling_llama")
        gemma = library("transformers.models.gemma.modeling_gemma")
        norm = llama.LlamaRMSNorm(64)
        torch.nn.init.normal_(norm.weight)
        x = torch.randn(2, 5, 64)
        close(self, self.bound(ek.layers.RMSNorm, norm)(x), norm(x))
        q, k = torch.randn(2, 3, 5, 16), torch.randn(2, 1, 5, 16)
        cos, sin = (torch.randn(2, 5, 8).repeat(1, 1, 2) for _ in range(2))
        rotary = ek.layers.RotaryPosEmb()
        for dim, swap in ((1, lambda t: t), (2, lambda t: t.transpose(1, 2))):
            want = llama.apply_rotary_pos_emb(swap(q), swap(k), cos, sin, unsqueeze_dim=dim)
            for a, b in zip(rotary(swap(q), swap(k), cos, sin, unsqueeze_dim=dim), want):
                close(self, a, b)
        for cls, layer, act in (
            (llama.LlamaMLP, ek.layers.SwiGLUMLP, "silu"),
            (gemma.GemmaMLP, ek.layers.GeGLUMLP, "gelu_pytorch_tanh"),
        ):
            config = types.SimpleNamespace(
                hidden_size=64, intermediate_size=32, mlp_bias=False, hidden_act=act,
                hidden_activation=act,
            )  # fmt: skip
            mlp = cls(config)
            close(self, self.bound(layer, mlp)(x), mlp(x))

    def test_they_have_no_constructor_and_no_members(self):
        allowed = {"forward", "has_backward", "can_torch_compile"}
        for layer in vars(ek.layers).values():
            if isinstance(layer, type) and layer.__module__ == ek.layers.__name__:
                own = {n for n in vars(layer) if not n.startswith("__")}
                self.assertEqual(own, allowed, layer.__name__)
                self.assertIs(layer.__init__, torch.nn.Module.__init__)


class Hub(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = Path(self.folder.name)

    def test_a_variant_is_whole_and_named_by_its_content(self):
        folder = hub.write(self.out)
        self.assertEqual(folder.name, "torch-stable-abi210-cu130-x86_64-linux")
        metadata = json.loads((folder / "metadata.json").read_text())
        self.assertTrue(metadata["id"].isidentifier())
        self.assertEqual(metadata["python-depends"], [])
        self.assertTrue((folder / "lib" / "libebb_kernels.so").is_file())
        self.assertEqual(list(folder.rglob("__pycache__")), [])
        self.assertIn(metadata["id"], (folder / "_namespace.py").read_text())
        again = json.loads((hub.write(self.out) / "metadata.json").read_text())
        self.assertEqual(again["id"], metadata["id"])

    def test_the_hubs_library_loads_it_beside_the_package(self):
        kernels = library("kernels")
        for backend in hub.VARIANTS:
            hub.write(self.out, backend)
        loaded = kernels.get_local_kernel(self.out)
        self.assertTrue(loaded.__name__.startswith("_ebb_kernels_"))
        x = torch.randn(3, 8)
        close(self, loaded.rms_norm(x), ek.rms_norm(x))
        self.assertTrue(hasattr(torch.ops, loaded.__name__))

    def test_kernelize_takes_the_layers(self):
        kernels = library("kernels")
        for backend in hub.VARIANTS:
            hub.write(self.out, backend)

        @kernels.use_kernel_forward_from_hub("RMSNorm")
        class Norm(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.randn(8))
                self.variance_epsilon = 1e-6

            def forward(self, hidden_states):
                raise AssertionError("this forward was to be replaced")

        repository = kernels.LocalLayerRepository(self.out, layer_name="RMSNorm")
        mode = kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE
        with kernels.use_kernel_mapping({"RMSNorm": {"cpu": {mode: repository}}}):
            model = kernels.kernelize(torch.nn.Sequential(Norm()), mode=mode, device="cpu")
        x = torch.randn(3, 8)
        want = torch.nn.functional.rms_norm(x, (8,), model[0].weight, 1e-6)
        close(self, model(x), want)


if __name__ == "__main__":
    unittest.main()
