"""inject() and restore() among hooks of accelerate, diffusers and torch, in all orders."""

import types
import unittest

import torch

import ebb_kernels as ek
from models import Calls, Tiny, counted, flux, library, llama, ltx_video, same, wan

F = torch.nn.functional


class Hooks(unittest.TestCase):
    """Hooks of accelerate and diffusers around a norm and a block, before and after inject()."""

    def accelerate(self, module):
        accelerate = library("accelerate")

        class Seen(accelerate.hooks.ModelHook):
            calls = 0

            def pre_forward(self, module, *args, **kwargs):
                self.calls += 1
                return args, kwargs

        seen = Seen()
        accelerate.hooks.add_hook_to_module(module, seen)
        return lambda: seen.calls, lambda: accelerate.hooks.remove_hook_from_module(module)

    def diffusers(self, module, new_forward=False):
        hooks = library("diffusers.hooks.hooks")

        class Seen(hooks.ModelHook):
            calls = 0

            def pre_forward(self, module, *args, **kwargs):
                self.calls += 1
                return args, kwargs

        def around(self, module, *args, **kwargs):
            return self.fn_ref.original_forward(*args, **kwargs)

        seen = Seen()
        if new_forward:
            seen.new_forward = types.MethodType(around, seen)
        registry = hooks.HookRegistry.check_if_exists_or_initialize(module)
        name = f"seen{new_forward}"
        registry.register_hook(seen, name)
        return lambda: seen.calls, lambda: registry.remove_hook(name)

    def check(self, *hooking):
        """All orders of adding hooks, inject(), restore() and removing the hooks."""
        for when in range(len(hooking) + 1):
            for removed_first in (False, True):
                norm = torch.nn.RMSNorm(8, eps=1e-6)
                x = torch.randn(3, 8)
                want = norm(x)
                added = [hook(norm) for hook in hooking[:when]]
                ek.inject(norm)
                added += [hook(norm) for hook in hooking[when:]]
                got, calls = counted(norm, x)
                self.assertEqual(calls, {"rms_norm": 1})
                same(self, got, want)
                self.assertEqual([seen() for seen, _ in added], [1] * len(added))
                if removed_first:
                    for _, remove in reversed(added):
                        remove()
                    self.assertEqual(counted(norm, x)[1], {"rms_norm": 1})
                self.assertEqual(ek.restore(norm), 1)
                got, calls = counted(norm, x)
                self.assertEqual(calls, {})
                self.assertTrue(torch.equal(got, want))
                self.assertEqual([seen() for seen, _ in added], [2 - removed_first] * len(added))
                self.assertEqual(ek.inject(norm).replaced, {"": "torch_rms_norm"})

    def test_accelerate(self):
        self.check(self.accelerate)

    def test_diffusers(self):
        self.check(self.diffusers)
        self.check(lambda m: self.diffusers(m, new_forward=True))

    def test_both(self):
        self.check(self.accelerate, self.diffusers)
        self.check(self.diffusers, self.accelerate)
        self.check(self.diffusers, lambda m: self.diffusers(m, new_forward=True))

    def test_offloaded_weights_are_fetched(self):
        accelerate = library("accelerate")
        for make in (ltx_video, flux, wan, llama):
            for hooks_first in (False, True):
                tiny = Tiny(make)
                with torch.no_grad():
                    want = tiny()
                    for first in (hooks_first, not hooks_first):
                        if first:
                            accelerate.cpu_offload(tiny.model, "cpu", offload_buffers=True)
                        else:
                            ek.inject(tiny.model)
                    self.assertTrue(any(p.is_meta for p in tiny.model.parameters()))
                    with Calls() as calls:
                        same(self, tiny(), want)
                    self.assertGreater(sum(calls.counts.values()), 4)

    def test_weights_stored_in_8_bits_and_groups_that_are_offloaded(self):
        def cast(model):
            model.enable_layerwise_casting(torch.float8_e4m3fn, torch.bfloat16)

        def offload(model):
            cpu = torch.device("cpu")
            model.enable_group_offload(cpu, cpu, "block_level", num_blocks_per_group=1)

        for make in (ltx_video, flux, wan):
            for change in (cast, offload):
                plain = Tiny(make, torch.bfloat16)
                with torch.no_grad():
                    change(plain.model)
                    want = plain()
                    for order in ((change, ek.inject), (ek.inject, change)):
                        tiny = Tiny(make, torch.bfloat16)
                        for step in order:
                            step(tiny.model)
                        with Calls() as calls:
                            same(self, tiny(), want, 3e-2)
                        self.assertGreater(calls.counts["add_norm"], 1)

    def test_a_norms_own_hooks_run_inside_an_injected_block(self):
        tiny = Tiny(ltx_video)
        ek.inject(tiny.model)
        seen = []
        block = tiny.model.transformer_blocks[0]
        for norm in (block.norm1, block.norm2, block.attn1.norm_q):
            norm.register_forward_hook(lambda module, args, out: seen.append(module))
        tiny()
        self.assertEqual(seen, [block.norm1, block.attn1.norm_q, block.norm2])

    def test_a_forward_that_another_library_wrote_comes_back(self):
        norm = torch.nn.RMSNorm(8, eps=1e-6)
        norm.forward = types.MethodType(lambda self, x: 7 * x, norm)
        x = torch.randn(3, 8)
        ek.inject(norm)
        same(self, norm(x), F.rms_norm(x, (8,), norm.weight, 1e-6))
        ek.restore(norm)
        self.assertTrue(torch.equal(norm(x), 7 * x))

    def test_a_forward_of_an_unknown_kind_is_left_and_reported(self):
        model = torch.nn.Sequential(torch.nn.RMSNorm(8), torch.nn.LayerNorm(8))
        model[0].forward = lambda x: x
        report = ek.inject(model)
        self.assertIn("replaced by something else", report.skipped["0"])


if __name__ == "__main__":
    unittest.main()
