"""Imports modules of an AUTOMATIC1111 webui checkout; what is not sampling is stubbed."""

import importlib
import sys
import types

import torch

import k_diffusion_golden
from comfyui_reference import Anything


class Options(types.SimpleNamespace):
    """The webui's options that sampling reads; each run sets what it needs."""


def load(path):
    """Returns get(module name): 'rng' gives modules.rng of the checkout."""
    sampling = k_diffusion_golden.sampling()
    sys.modules["k_diffusion"].sampling = sampling
    package = types.ModuleType("modules")
    package.__path__ = [str(path / "modules")]
    sys.modules["modules"] = package
    for name in ("shared", "devices", "images", "sd_vae_approx", "sd_samplers", "sd_vae_taesd",
                 "sd_models", "script_callbacks", "prompt_parser", "torch_utils"):
        sys.modules[f"modules.{name}"] = Anything(f"modules.{name}")
        setattr(package, name, sys.modules[f"modules.{name}"])
    package.torch_utils.float64 = lambda _: torch.float64
    package.shared.opts = Options(
        randn_source="CPU", eta_noise_seed_delta=0, beta_dist_alpha=0.6, beta_dist_beta=0.6,
        uni_pc_variant="bh1", uni_pc_skip_type="time_uniform", uni_pc_order=3,
        uni_pc_lower_order_final=True)
    package.shared.device = package.devices.device = package.devices.cpu = torch.device("cpu")
    package.shared.sd_model = types.SimpleNamespace(is_sdxl=False)
    package.shared.state = Anything("state")
    return lambda name: importlib.import_module(f"modules.{name}")
