"""Imports the reference networks from checkouts outside this repository, and runs them in float64.

The references pin float32 in places (softmax, group norm, frequencies, time steps). `exact_mode`
makes these places float64, so that the difference to the plain run is torch's rounding error.
"""

import contextlib
import hashlib
import importlib
import sys
from pathlib import Path

import torch


class DoubleTorch:
    """The torch module with float32 replaced by float64."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def exact_mode():
    """While active, the loaded reference modules compute in float64 throughout."""
    loaded = [("training.networks", "torch"), ("guided_diffusion.unet", "th"),
              ("guided_diffusion.nn", "th"), ("guided_diffusion.gaussian_diffusion", "th"),
              ("diffusers.models.embeddings", "torch")]
    modules = [(sys.modules[m], attr) for m, attr in loaded if m in sys.modules]
    to_float = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)  # 0-d integers times Python floats promote to it
    for module, attr in modules:
        setattr(module, attr, DoubleTorch())
    try:
        yield
    finally:
        torch.Tensor.float = to_float
        torch.set_default_dtype(torch.float32)
        for module, attr in modules:
            setattr(module, attr, torch)


def load(path, module):
    """Imports `module` from the checkout at `path`."""
    path = str(Path(path).resolve())
    if path not in sys.path:
        sys.path.insert(0, path)
    return importlib.import_module(module)


def file_hash(path):
    """First 16 hex digits of the sha256 of a file: which version of a reference was run."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def adm_network(path, c):
    """guided-diffusion's UNetModel for our plain config `c`."""
    unet = load(path, "guided_diffusion.unet")
    return unet.UNetModel(
        image_size=c["image_size"],
        in_channels=c["in_channels"],
        model_channels=c["model_channels"],
        out_channels=c["out_channels"],
        num_res_blocks=c["num_res_blocks"],
        attention_resolutions=[c["image_size"] // r for r in c["attention_resolutions"]],
        dropout=c["dropout"],
        channel_mult=c["channel_mult"],
        conv_resample=c.get("conv_resample", True),
        num_classes=c["num_classes"] or None,
        num_heads=c["num_heads"],
        num_head_channels=c["num_head_channels"] or -1,
        use_scale_shift_norm=c["use_scale_shift_norm"],
        resblock_updown=c["resblock_updown"],
        use_new_attention_order=c["use_new_attention_order"],
    )


def adm_call(module, i):
    module.dtype = i["x"].dtype  # the reference casts the image to its own dtype
    return module(i["x"], i["t"], *([i["y"]] if "y" in i else []))


def edm_network(path, kind, c):
    """EDM's SongUNet or DhariwalUNet for our plain config `c` (its fields are theirs)."""
    return getattr(load(path, "training.networks"), kind)(**c)


def edm_call(module, i):
    return module(i["x"], i["noise_labels"], i.get("class_labels"), i.get("augment_labels"))
