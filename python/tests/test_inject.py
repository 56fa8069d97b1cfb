"""inject() and restore() on tiny models of every recipe: results, levels, reports. Needs torch; the
models need diffusers and transformers."""

import inspect
import unittest
import warnings

import ebb_kernels as ek
import torch
from torch._dynamo.backends.common import aot_autograd

from ebb_kernels.inject import hooks, recipe, source
from models import (
    DIFFUSION,
    LANGUAGE,
    Calls,
    Tiny,
    flux,
    llama,
    ltx_video,
    qwen3,
    qwen_image,
    sd3,
    wan,
    z_image,
)

# Of the largest result: some roundings of each dtype.
TOLERANCE = {torch.float32: 5e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}
EVERY = DIFFUSION + LANGUAGE


def each(makers):
    """Runs a test once for each model, and skips those whose library is missing."""

    def decorate(test):
        def run(self):
            for make in makers:
                with self.subTest(make.__name__):
                    test(self, make)

        run.__name__ = test.__name__
        return run

    return decorate


class Models(unittest.TestCase):
    def near(self, got, want, what=""):
        self.assertEqual(got.dtype, want.dtype, what)
        error = (got - want).abs().max().item() / want.abs().max().item()
        self.assertLess(error, TOLERANCE[want.dtype], what)

    @each(EVERY)
    def test_results_are_the_models_own_and_come_back_bit_for_bit(self, make):
        for dtype in (torch.float32, torch.bfloat16):
            tiny = Tiny(make, dtype)
            with torch.no_grad():
                before = tiny()
                ek.inject(tiny.model)
                with Calls() as calls:
                    self.near(tiny(), before, f"{make.__name__} {dtype}")
                self.assertGreater(calls.counts.get("add_norm", 0), 1)
                ek.restore(tiny.model)
                with Calls() as calls:
                    self.assertTrue(torch.equal(tiny(), before))
                self.assertEqual(calls.counts, {})

    def test_configurations_that_take_other_ways(self):
        for make, changes in (
            (ltx_video, dict(per_token=True)),
            (ltx_video, dict(norm_elementwise_affine=True)),
            (flux, dict(guidance_embeds=True, num_single_layers=1)),
            (wan, dict(per_token=True, cross_attn_norm=False)),
            (wan, dict(image_dim=16, added_kv_proj_dim=24)),
            (sd3, dict(qk_norm=None, dual_attention_layers=())),
            (qwen_image, dict(zero_cond_t=True)),
            (z_image, dict(omni=True)),
            (qwen3, dict(num_key_value_heads=2, attention_bias=True)),
        ):
            with self.subTest(f"{make.__name__} {changes}"), torch.no_grad():
                tiny = Tiny(make, **changes)
                before = tiny()
                ek.inject(tiny.model)
                with Calls() as calls:
                    self.near(tiny(), before)
                self.assertGreater(calls.counts["add_norm"], 1)

    @each(EVERY)
    def test_errors_are_no_larger_than_the_models_own(self, make):
        tiny = Tiny(make, torch.bfloat16)
        with torch.no_grad():
            own = tiny().double()
            ek.inject(tiny.model)
            ours = tiny().double()
            ek.restore(tiny.model)
            exact = Tiny(make, torch.float32)
            exact.model.load_state_dict(tiny.model.state_dict())
            exact.random = lambda *shape: tiny.random(*shape).float()
            want = exact().double()
        self.assertLess((ours - want).norm(), 1.2 * (own - want).norm())

    @each(EVERY)
    def test_levels_hold_each_other_and_each_serves_alone(self, make):
        found = []
        for level in recipe.LEVELS:
            tiny = Tiny(make)
            with torch.no_grad():
                before = tiny()
                report = ek.inject(tiny.model, level)
                self.near(tiny(), before, level)
            levels = {r.name: r.level for r in recipe.all_recipes()}
            highest = {levels.get(name, "processors") for name in report.replaced.values()}
            self.assertIn(level, highest)
            found.append(set(report.replaced))
        self.assertTrue(found[0] < found[1] < found[2])

    @each(EVERY)
    def test_gradients_are_the_models_own(self, make):
        def gradients(tiny):
            tiny.model.zero_grad()
            out = tiny()
            out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape))
            return {n: p.grad for n, p in tiny.model.named_parameters() if p.grad is not None}

        tiny = Tiny(make)
        before = gradients(tiny)
        ek.inject(tiny.model)
        after = gradients(tiny)
        self.assertEqual(before.keys(), after.keys())
        for name, want in before.items():
            error = (after[name] - want).abs().max() / want.abs().max().clamp(min=1e-3)
            self.assertLess(error, 1e-3, name)

    @each(EVERY)
    def test_a_second_call_changes_nothing(self, make):
        tiny = Tiny(make)
        first = ek.inject(tiny.model)
        forwards = {n: hooks.current(m) for n, m in tiny.model.named_modules()}
        second = ek.inject(tiny.model)
        self.assertEqual(first.replaced, second.replaced)
        for name, module in tiny.model.named_modules():
            self.assertIs(hooks.current(module), forwards[name])
        self.assertGreater(ek.restore(tiny.model), 0)
        self.assertEqual(ek.restore(tiny.model), 0)

    @each([ltx_video, flux, wan, qwen3])
    def test_it_compiles_without_a_break(self, make):
        tiny = Tiny(make)
        with torch.no_grad():
            before = tiny()
            ek.inject(tiny.model)
            torch.compiler.reset()
            targets = []

            def note(graph, inputs):
                targets.extend(str(node.target) for node in graph.graph.nodes)
                return graph

            backend = aot_autograd(fw_compiler=note)
            self.near(tiny(torch.compile(tiny.model, backend=backend, fullgraph=True)), before)
        self.assertIn("ebb_kernels.add_norm.default", targets)

    @each(EVERY)
    def test_signatures_stay(self, make):
        """Libraries look at them, and drop arguments that they do not find."""
        tiny = Tiny(make)
        ek.inject(tiny.model)
        for module in tiny.model.modules():
            replacement = hooks.current(module)
            if replacement and replacement.ebb_recipe.level != "modules":
                want = list(inspect.signature(type(module).forward).parameters)
                self.assertEqual(list(inspect.signature(replacement).parameters), want)
            processor = module.__dict__.get("processor")
            if hasattr(processor, "ebb_previous"):
                want = inspect.signature(processor.ebb_previous.__call__).parameters
                self.assertEqual(list(inspect.signature(processor).parameters), list(want))

    @each(EVERY)
    def test_every_recipe_knows_its_source(self, make):
        tiny = Tiny(make)
        recipe.load()
        for module in tiny.model.modules():
            for cls in {type(module), type(module.__dict__.get("processor"))}:
                stale = recipe.find(cls)[1]
                now = stale and source.digest(cls, stale.parts)
                self.assertIsNone(stale, f"{cls.__name__}: the digest is {now} now")


class Reports(unittest.TestCase):
    def test_nothing_to_replace_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "nothing to replace in Sequential.*Conv2d"):
            ek.inject(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)))
        with self.assertRaisesRegex(TypeError, "a pipeline"):
            ek.inject(3)
        with self.assertRaisesRegex(ValueError, "level is one of auto, modules"):
            ek.inject(torch.nn.RMSNorm(8), "everything")

    def test_a_report_names_modules_and_counts_recipes(self):
        model = torch.nn.Sequential(
            torch.nn.RMSNorm(8), torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)
        )
        report = ek.inject(model)
        self.assertEqual(report.replaced, {"0": "torch_rms_norm", "2": "torch_layer_norm"})
        self.assertIn("2 replaced", str(report))

    def test_a_pipeline_names_what_it_walked(self):
        class Pipeline:
            components = {
                "vae": torch.nn.Sequential(torch.nn.LayerNorm(8)),
                "text_encoder": torch.nn.Sequential(torch.nn.RMSNorm(8)),
                "scheduler": object(),
                "safety_checker": None,
            }

        report = ek.inject(Pipeline())
        self.assertEqual(report.components, ["vae", "text_encoder"])
        self.assertEqual(set(report.replaced), {"vae.0", "text_encoder.0"})

    def test_another_release_of_a_block_is_left_with_one_warning(self):
        tiny = Tiny(ltx_video)
        block = type(tiny.model.transformer_blocks[0])
        before = block.forward

        def forward(self, hidden_states, encoder_hidden_states, temb, *args, **kwargs):
            return 2 * before(self, hidden_states, encoder_hidden_states, temb, *args, **kwargs)

        block.forward = forward
        source.digest.cache_clear()
        try:
            with torch.no_grad(), warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                want = tiny()
                report = ek.inject(tiny.model)
                error = (tiny() - want).abs().max() / want.abs().max()
        finally:
            block.forward = before
            source.digest.cache_clear()
            recipe.find.cache_clear()
        self.assertLess(error, 5e-6)
        self.assertEqual(["ltx_video_block" in str(w.message) for w in seen], [True])
        self.assertIn("transformer_blocks.1", report.skipped)
        self.assertEqual(report.counts()["ltx_video_attention"], 4)
        self.assertNotIn("ltx_video_block", report.counts())

    def test_import_needs_no_other_library(self):
        import subprocess
        import sys

        code = "import ebb_kernels, sys; print({'diffusers', 'transformers'} & set(sys.modules))"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(out.stdout.strip(), "set()", out.stderr)

    def test_attention_of_transformers_is_chosen_and_put_back(self):
        tiny = Tiny(llama)
        ek.inject(tiny.model, "modules")
        self.assertEqual(tiny.model.config._attn_implementation, "sdpa")
        ek.inject(tiny.model)
        self.assertEqual(tiny.model.config._attn_implementation, "ebb")
        ek.restore(tiny.model)
        self.assertEqual(tiny.model.config._attn_implementation, "sdpa")


if __name__ == "__main__":
    unittest.main()
