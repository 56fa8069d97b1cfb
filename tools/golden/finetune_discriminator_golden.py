"""Golden training steps of a small autoencoder with a patch discriminator beside it.

    python tools/golden/finetune_discriminator_golden.py --out tests/golden

As finetune_autoencoder_golden.py, with the discriminator of pix2pix (Isola et al. 2017), group
norms in place of batch norms, the hinge loss, and the adaptive weight of VQGAN (Esser et al. 2021,
equation 7). One AdamW trains both, the discriminator at another rate and without weight decay. The
autoencoder sees the discriminator's weights as constants, the discriminator the decoded pictures:
each gets the gradient of its own loss. What is recorded as the loss is that of the autoencoder
without the discriminator's part.
"""

import argparse
import platform
from pathlib import Path

import diffusers
import torch
from torch import nn
from torch.nn import functional

import finetune_golden as base
from component_golden import vae_config, vae_module, vae_name
from finetune_autoencoder_golden import image
from generate import write
from hashed_weights import hashed_parameter

SHAPE, LATENTS, KL_WEIGHT = [2, 24, 32, 3], [2, 12, 16, 4], 0.05
CHANNELS, DISC_WEIGHT, RATE = 16, 0.5, 0.25


class Discriminator(nn.Module):
    def __init__(self, channels):
        super().__init__()
        c = channels
        self.convs = nn.ModuleList([
            nn.Conv2d(3, c, 4, 2, 1), nn.Conv2d(c, 2 * c, 4, 2, 1, bias=False),
            nn.Conv2d(2 * c, 4 * c, 4, 2, 1, bias=False),
            nn.Conv2d(4 * c, 8 * c, 4, 1, 1, bias=False), nn.Conv2d(8 * c, 1, 4, 1, 1)])
        self.norms = nn.ModuleList([nn.GroupNorm(32, c << i) for i in (1, 2, 3)])

    def forward(self, x):
        x = functional.leaky_relu(self.convs[0](x), 0.2)
        for conv, norm in zip(self.convs[1:4], self.norms):
            x = functional.leaky_relu(norm(conv(x)), 0.2)
        return self.convs[4](x)


def name_of(name):
    """convs.1.weight -> discriminator.1.conv.weight; norms count from the second convolution."""
    kind, index, end = name.split(".")
    return f"discriminator.{int(index) + (kind == 'norms')}.{kind[:-1]}.{end}"


def is_discriminators(name):
    return name.startswith("discriminator.")


def constant(disc, x):
    """D(x), in which the weights of D are constants."""
    weights = {n: p.detach() for n, p in disc.named_parameters()}
    return torch.func.functional_call(disc, weights, (x,))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    c = vae_config(channels=16, res_blocks=1, groups=8)
    vae = vae_module(c).double().requires_grad_(True)
    disc = Discriminator(CHANNELS).double()
    with torch.no_grad():
        for name, p in disc.named_parameters():
            p.copy_(torch.from_numpy(hashed_parameter(name_of(name), p.shape)).double())
    images, noise = image("input.images", SHAPE), image("input.noise", LATENTS)
    last = vae.decoder.conv_out.weight
    told = []

    def loss():
        posterior = vae.encode(images).latent_dist
        decoded = vae.decode(posterior.mean + posterior.std * noise).sample
        l1 = (images - decoded).abs().mean()
        whole = l1 + KL_WEIGHT * posterior.kl().mean() / images[0].numel()
        gan = -constant(disc, decoded).mean()
        norms = [torch.autograd.grad(v, last, retain_graph=True)[0].norm() for v in (l1, gan)]
        weight = DISC_WEIGHT * (norms[0] / (norms[1] + 1e-4)).clamp(0, 1e4)
        hinge = (functional.relu(1 - disc(images)).mean() +
                 functional.relu(1 + disc(decoded.detach())).mean()) / 2
        told.append({"disc_loss": hinge.item(), "gan_loss": gan.item(),
                     "gan_weight": weight.item()})
        added = weight.detach() * gan + hinge
        return whole + added - added.detach()

    levels = len(c["channel_mult"])
    params = {vae_name(n, levels): p for n, p in vae.named_parameters()}
    params |= {name_of(n): p for n, p in disc.named_parameters()}
    trained = base.trained(
        loss, params, rate_of=lambda n: RATE if is_discriminators(n) else 1.0,
        decay_of=lambda n: 0.0 if is_discriminators(n) else base.ADAMW["weight_decay"])
    write(out / "finetune_discriminator.json", {
        "generator": "tools/golden/finetune_discriminator_golden.py",
        "versions": {"torch": torch.__version__, "diffusers": diffusers.__version__,
                     "python": platform.python_version()},
        "config": c, "shape": SHAPE, "latents": LATENTS, "kl_weight": KL_WEIGHT,
        "channels": CHANNELS, "disc_weight": DISC_WEIGHT, "rate": RATE,
        "adamw": {"lr": base.ADAMW["lr"], "eps": base.ADAMW["eps"], "beta1": 0.9, "beta2": 0.999,
                  "weight_decay": base.ADAMW["weight_decay"]},
        "told": told, "whole": trained})


if __name__ == "__main__":
    main()
