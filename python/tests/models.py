"""Tiny models of diffusers and transformers with random weights, each with a call of it. A library
that is missing raises unittest.SkipTest."""

import importlib
import logging
import unittest

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ebb_kernels.inject import attention

attention.DEVICES.add("cpu")  # so that it is tested
logging.getLogger("diffusers").setLevel(logging.ERROR)


class Calls(TorchDispatchMode):
    """Counts the calls of ebb's operators, and notes the dtypes of their arguments."""

    def __init__(self):
        super().__init__()
        self.counts, self.dtypes = {}, {}

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace == "ebb_kernels":
            name = op._schema.name.partition("::")[2]
            self.counts[name] = self.counts.get(name, 0) + 1
            dtypes = tuple(a.dtype if isinstance(a, torch.Tensor) else None for a in args)
            self.dtypes.setdefault(name, set()).add(dtypes)
        return op(*args, **(kwargs or {}))


def library(name):
    """A module, "diffusers" or "diffusers.models.normalization"."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise unittest.SkipTest(f"needs {name.partition('.')[0]}")


class Tiny:
    """A model in a dtype, and its inputs; the same in each call."""

    def __init__(self, make, dtype=torch.float32, **changes):
        torch.manual_seed(0)
        self.model = make(self, **changes).to(dtype).eval()
        self.dtype = dtype
        # Nothing at 0 or 1, where mistakes do not show, nor what is left to a checkpoint.
        for name, p in self.model.named_parameters():
            if p.dim() == 1 or "pad_token" in name or p.abs().max() == 0:
                torch.nn.init.normal_(p, 0.5, 0.5)

    def random(self, *shape):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(
            getattr(self, "dtype", torch.float32)
        )

    def __call__(self, model=None):
        return self.call(self.model if model is None else model)


def ltx_video(self, per_token=False, **changes):
    diffusers = library("diffusers")
    config = dict(
        in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=32,
        cross_attention_dim=64, num_layers=2, caption_channels=16,
    )  # fmt: skip

    def call(m):
        times = torch.arange(16.0).view(2, 8) if per_token else torch.tensor([3.0, 700.0])
        return m(
            self.random(2, 8, 8), self.random(2, 5, 16), times, torch.ones(2, 5).tril(3),
            2, 2, 2, return_dict=False,
        )[0]  # fmt: skip

    self.call = call
    return diffusers.LTXVideoTransformer3DModel(**{**config, **changes})


def flux(self, **changes):
    diffusers = library("diffusers")
    config = dict(
        in_channels=8, num_layers=2, num_single_layers=2, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32,
        axes_dims_rope=(4, 6, 6), guidance_embeds=True,
    )  # fmt: skip

    def call(m):
        places = torch.arange(6.0)[:, None] * torch.tensor([0.0, 1.0, 2.0])
        return m(
            self.random(2, 6, 8), self.random(2, 5, 32), self.random(2, 32),
            self.random(2).abs(), places, torch.zeros(5, 3), self.random(2).abs(),
            return_dict=False,
        )[0]  # fmt: skip

    self.call = call
    return diffusers.FluxTransformer2DModel(**{**config, **changes})


def wan(self, per_token=False, **changes):
    diffusers = library("diffusers")
    config = dict(
        num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16,
        freq_dim=32, ffn_dim=32, num_layers=2, cross_attn_norm=True, rope_max_seq_len=32,
    )  # fmt: skip

    def call(m):
        times = torch.arange(64.0).view(2, 32) if per_token else torch.tensor([3.0, 700.0])
        image = self.random(2, 7, config["image_dim"]) if config.get("image_dim") else None
        text = self.random(2, 9 if image is None else 512, 16)
        return m(self.random(2, 4, 2, 8, 8), times, text, image, return_dict=False)[0]

    config.update(changes)
    self.call = call
    return diffusers.WanTransformer3DModel(**config)


def sd3(self, **changes):
    diffusers = library("diffusers")
    config = dict(
        sample_size=8, in_channels=4, out_channels=4, num_layers=3, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, caption_projection_dim=32,
        pooled_projection_dim=32, pos_embed_max_size=8, dual_attention_layers=(1,),
        qk_norm="rms_norm",
    )  # fmt: skip

    def call(m):
        return m(
            self.random(2, 4, 8, 8), self.random(2, 5, 32), self.random(2, 32),
            torch.tensor([3.0, 700.0]), return_dict=False,
        )[0]  # fmt: skip

    self.call = call
    return diffusers.SD3Transformer2DModel(**{**config, **changes})


def qwen_image(self, **changes):
    diffusers = library("diffusers")
    config = dict(
        in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, axes_dims_rope=(4, 6, 6),
    )  # fmt: skip
    edit = changes.get("zero_cond_t", False)

    def call(m):
        mask = torch.ones(2, 5, dtype=torch.bool)
        mask[0, 3:] = False
        shapes = [[(1, 2, 3), (1, 2, 2)] if edit else [(1, 2, 5)]] * 2
        return m(
            self.random(2, 10, 16), self.random(2, 5, 32), mask,
            torch.tensor([0.003, 0.7]).to(self.dtype), shapes, return_dict=False,
        )[0]  # fmt: skip

    self.call = call
    return diffusers.QwenImageTransformer2DModel(**{**config, **changes})


def flux2(self, **changes):
    diffusers = library("diffusers")
    config = dict(
        in_channels=8, num_layers=2, num_single_layers=2, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, timestep_guidance_channels=32,
        axes_dims_rope=(4, 4, 4, 4),
    )  # fmt: skip

    def call(m):
        places = torch.arange(6.0)[:, None] * torch.tensor([0.0, 1.0, 2.0, 0.0])
        return m(
            self.random(2, 6, 8), self.random(2, 5, 32), self.random(2).abs(), places,
            torch.zeros(5, 4), self.random(2).abs(), return_dict=False,
        )[0]  # fmt: skip

    self.call = call
    return diffusers.Flux2Transformer2DModel(**{**config, **changes})


def z_image(self, omni=False, **changes):
    diffusers = library("diffusers")
    config = dict(
        in_channels=4, dim=48, n_layers=2, n_refiner_layers=1, n_heads=3, n_kv_heads=3,
        cap_feat_dim=32, axes_dims=[4, 6, 6], axes_lens=[256, 64, 64],
        siglip_feat_dim=16 if omni else None,
    )  # fmt: skip

    def call(m):
        images = [self.random(4, 1, 8, 8), self.random(4, 1, 8, 4)]
        texts = [self.random(5, 32), self.random(7, 32)]
        times = torch.tensor([0.3, 0.7]).to(self.dtype)
        if not omni:
            return torch.cat(m(images, times, texts, return_dict=False)[0], dim=-1)
        # A clean image, whose features are given, before the noisy one.
        images = [[image, image] for image in images]
        features = [[self.random(2, 2, 16), None]] * 2
        return torch.cat(
            m(
                images, times, [[text, text] for text in texts], siglip_feats=features,
                image_noise_mask=[[0, 1]] * 2, return_dict=False,
            )[0], dim=-1,
        )  # fmt: skip

    self.call = call
    return diffusers.ZImageTransformer2DModel(**{**config, **changes})


def _language_model(name):
    def make(self, **changes):
        transformers = library("transformers")
        config = dict(
            vocab_size=99, hidden_size=128, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=64, max_position_embeddings=64,
        )  # fmt: skip
        ids = torch.arange(18).view(2, 9) * 5 % 99
        self.call = lambda m: m(ids).logits
        made = getattr(transformers, f"{name}Config")(**{**config, **changes})
        return getattr(transformers, f"{name}ForCausalLM")(made)

    make.__name__ = name.lower()
    return make


llama, mistral, qwen2, qwen3, gemma = map(
    _language_model, ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma")
)
DIFFUSION = [ltx_video, flux, wan, sd3, qwen_image, flux2, z_image]
LANGUAGE = [llama, mistral, qwen2, qwen3, gemma]


def same(test, got, want, tolerance=1e-5):
    """Of one dtype, and as near as a share of the largest."""
    test.assertEqual(got.dtype, want.dtype)
    test.assertLessEqual((got - want).abs().max().item(), tolerance * want.abs().max().item())


def counted(model, x):
    """The result of a module and how often it called which of ebb's operators."""
    with Calls() as calls, torch.no_grad():
        return model(x), calls.counts
