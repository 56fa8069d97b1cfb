"""Golden training steps of a small autoencoder: losses, gradients, AdamW.

    python tools/golden/finetune_autoencoder_golden.py --out tests/golden

diffusers' AutoencoderKL in float64, with torch's autograd and AdamW, as finetune_golden.py has
them. The loss is that of Rombach et al. 2022 without the discriminator: the sums over an image of
|x - decoded| and of the divergence of its latents, weighted, over the numbers of the image.
"""

import argparse
import platform
from pathlib import Path

import diffusers
import torch

import finetune_golden as base
from component_golden import vae_config, vae_module, vae_name
from generate import write
from hashed_weights import hashed_input

SHAPE, LATENTS, KL_WEIGHT = [2, 12, 16, 3], [2, 6, 8, 4], 0.05


def image(name, shape):
    return torch.from_numpy(hashed_input(name, shape)).double().permute(0, 3, 1, 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    c = vae_config(channels=16, res_blocks=1, groups=8)
    vae = vae_module(c).double().requires_grad_(True)
    images, noise = image("input.images", SHAPE), image("input.noise", LATENTS)

    def loss():
        posterior = vae.encode(images).latent_dist
        decoded = vae.decode(posterior.mean + posterior.std * noise).sample
        whole = (images - decoded).abs().sum((1, 2, 3)) + KL_WEIGHT * posterior.kl()
        return whole.mean() / images[0].numel()

    levels = len(c["channel_mult"])
    params = {vae_name(n, levels): p for n, p in vae.named_parameters()}
    write(out / "finetune_autoencoder.json", {
        "generator": "tools/golden/finetune_autoencoder_golden.py",
        "versions": {"torch": torch.__version__, "diffusers": diffusers.__version__,
                     "python": platform.python_version()},
        "config": c, "shape": SHAPE, "latents": LATENTS, "kl_weight": KL_WEIGHT,
        "adamw": {"lr": base.ADAMW["lr"], "eps": base.ADAMW["eps"], "beta1": 0.9, "beta2": 0.999,
                  "weight_decay": base.ADAMW["weight_decay"]},
        "whole": base.trained(loss, params)})


if __name__ == "__main__":
    main()
