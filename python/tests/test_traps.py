"""What goes wrong where kernels are put into whole models of other libraries: each test is one such
way. Needs torch and the libraries."""

import copy
import pickle
import unittest
import warnings

import torch

import ebb_kernels as ek
from ebb_kernels.inject.attention import queries_and_keys
from models import Calls, Tiny, flux, library, llama, ltx_video, same, wan


class Models(unittest.TestCase):
    def test_modulation_by_token_and_in_f32(self):
        for make in (ltx_video, wan):
            for dtype in (torch.float32, torch.bfloat16):
                tiny = Tiny(make, dtype, per_token=True)
                with torch.no_grad():
                    want = tiny()
                    ek.inject(tiny.model)
                    with Calls() as calls:
                        same(self, tiny(), want, 1e-5 if dtype == torch.float32 else 3e-2)
                    self.assertGreater(calls.counts["ada_norm"], 1)
                    wide = torch.float32 if make is wan else dtype
                    for op, operands in (("ada_norm", (1, 2)), ("add_norm", (3, 4))):
                        for seen in calls.dtypes[op]:
                            self.assertLessEqual({seen[i] for i in operands}, {wide, None})

    def test_gradient_checkpointing(self):
        for make in (ltx_video, llama):
            tiny = Tiny(make)
            ek.inject(tiny.model)
            tiny().square().sum().backward()
            want = [p.grad.clone() for p in tiny.model.parameters() if p.grad is not None]
            tiny.model.zero_grad()
            (getattr(tiny.model, "enable_gradient_checkpointing", None)
             or tiny.model.gradient_checkpointing_enable)()  # fmt: skip
            tiny.model.train()
            tiny().square().sum().backward()
            got = [p.grad for p in tiny.model.parameters() if p.grad is not None]
            for a, b in zip(got, want, strict=True):
                self.assertTrue(torch.allclose(a, b, rtol=1e-4, atol=1e-5))

    def test_compiled_already_is_a_warning(self):
        norm = torch.nn.RMSNorm(8)
        norm.compile()
        with self.assertWarnsRegex(UserWarning, "compiled already"):
            ek.inject(norm)
        with self.assertWarnsRegex(UserWarning, "compiled already"):
            ek.inject(torch.compile(torch.nn.Sequential(torch.nn.RMSNorm(8))))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ek.inject(torch.nn.RMSNorm(8))

    def test_other_norms_of_queries_and_keys_are_called(self):
        for other in (torch.nn.Identity, lambda: torch.nn.LayerNorm(64)):
            tiny = Tiny(ltx_video)
            for block in tiny.model.transformer_blocks:
                block.attn1.norm_q = other()
            with torch.no_grad():
                want = tiny()
                ek.inject(tiny.model)
                same(self, tiny(), want)

    def test_settings_of_processors_pass_through(self):
        tiny = Tiny(flux)
        own = [m.processor for m in tiny.model.modules() if hasattr(m, "processor")]
        ek.inject(tiny.model)
        ours = [m.processor for m in tiny.model.modules() if hasattr(m, "processor")]
        for a, b in zip(own, ours):
            self.assertIsInstance(b, type(a))
            self.assertIsNot(a, b)
        tiny.model.set_attention_backend("_native_math")
        self.assertEqual({p._attention_backend for p in ours}, {"_native_math"})
        with torch.no_grad():
            tiny()
        ek.restore(tiny.model)
        back = [m.processor for m in tiny.model.modules() if hasattr(m, "processor")]
        self.assertTrue(all(a is b for a, b in zip(own, back)))
        self.assertEqual({p._attention_backend for p in back}, {"_native_math"})

    def test_a_chosen_backend_attends_and_ebb_where_there_is_none(self):
        attention_backend = library("diffusers.models.attention_dispatch").attention_backend
        tiny = Tiny(ltx_video, attention_head_dim=64, cross_attention_dim=128)
        with torch.no_grad():
            want = tiny()
            ek.inject(tiny.model)
            with Calls() as calls:
                same(self, tiny(), want)
            # Not of the text: its tokens have a mask.
            self.assertEqual(calls.counts["attention"], 2)
            with attention_backend("_native_math"), Calls() as calls:
                same(self, tiny(), want)
            self.assertNotIn("attention", calls.counts)
            tiny.model.set_attention_backend("_native_math")
            with Calls() as calls:
                same(self, tiny(), want)
            self.assertNotIn("attention", calls.counts)

    def test_processors_with_weights_are_left_and_reported(self):
        tiny = Tiny(flux)
        attn = tiny.model.transformer_blocks[0].attn

        class Adapter(torch.nn.Module):
            def forward(self, attn, *args, **kwargs):
                return type(attn)._default_processor_cls()(attn, *args, **kwargs)

        del attn.processor
        attn.processor = Adapter()
        report = ek.inject(tiny.model)
        self.assertIsInstance(attn.processor, Adapter)
        self.assertIn("Adapter", report.skipped["transformer_blocks.0.attn"])

    def test_copies_are_injected_and_pickles_are_not(self):
        for make, rotation in ((ltx_video, "qk_norm_rope"), (llama, "qk_rope")):
            tiny = Tiny(make)
            with torch.no_grad():
                want = tiny()
                ek.inject(tiny.model)
                copied = copy.deepcopy(tiny.model)
                with Calls() as calls:
                    ours = tiny(copied)
                self.assertGreater(calls.counts[rotation], 1)
                self.assertTrue(torch.equal(ours, tiny()))
                ek.restore(copied)
                self.assertTrue(torch.equal(tiny(copied), want))
                self.assertTrue(torch.equal(tiny(), ours))
                loaded = pickle.loads(pickle.dumps(tiny.model))
                loaded.config._attn_implementation = "sdpa"
                with Calls() as calls:
                    self.assertTrue(torch.equal(tiny(loaded), want))
                self.assertEqual(calls.counts, {})

    def test_fused_projections_are_used(self):
        for make in (flux, wan):
            tiny = Tiny(make)
            with torch.no_grad():
                want = tiny()
                ek.inject(tiny.model)
                for module in tiny.model.modules():
                    if hasattr(module, "fuse_projections"):
                        module.fuse_projections()
                        for name in ("to_q", "to_k", "to_v"):
                            if name != "to_q" or hasattr(module, "to_qkv"):
                                getattr(module, name).weight.data.zero_()
                same(self, tiny(), want)

    def test_padding_dropout_and_caches_are_served_by_sdpa(self):
        tiny = Tiny(llama)
        ids, mask = torch.arange(10).view(2, 5), torch.ones(2, 5, dtype=torch.long)
        mask[0, :2] = 0
        with torch.no_grad():
            want = tiny.model(ids, attention_mask=mask).logits
            tokens = tiny.model.generate(ids, attention_mask=mask, max_new_tokens=4)
            ek.inject(tiny.model)
            same(self, tiny.model(ids, attention_mask=mask).logits, want)
            again = tiny.model.generate(ids, attention_mask=mask, max_new_tokens=4)
        self.assertTrue(torch.equal(tokens, again))

    def test_kernels_of_transformers_are_a_warning(self):
        tiny = Tiny(llama)
        tiny.model._use_kernels = True
        with self.assertWarnsRegex(UserWarning, "use_kernels"):
            ek.inject(tiny.model)

    def test_f16_streams_are_clipped(self):
        tiny = Tiny(flux, torch.float16)
        block = tiny.model.transformer_blocks[0]
        torch.nn.init.zeros_(block.norm1_context.linear.weight)
        torch.nn.init.ones_(block.norm1_context.linear.bias)  # gates among them
        torch.nn.init.constant_(block.ff_context.net[2].bias, 6e4)
        text = torch.full((1, 3, 32), 3e4, dtype=torch.float16)
        ek.inject(tiny.model)
        with torch.no_grad():
            out, _ = block(tiny.random(1, 4, 32), text, tiny.random(1, 32))
        self.assertEqual(out.max().item(), 65504)

    def test_norms_over_all_heads_are_not_of_a_slice(self):
        """As a rank of tensor parallelism has it."""
        norm = torch.nn.RMSNorm(64, eps=1e-6)
        ek.inject(norm)
        q = torch.randn(1, 3, 2, 16)
        with Calls() as calls, self.assertRaises(RuntimeError):
            queries_and_keys(q, q, norm, norm, across_heads=True)
        self.assertNotIn("qk_norm_rope", calls.counts)


if __name__ == "__main__":
    unittest.main()
