"""Golden values of EDM (Karras et al., arXiv:2206.00364): preconditioning, loss, sampling.

Everything runs on the tiny DDPM++ network without augmentation labels. As for the networks, the
stored numbers are of an all-float64 run and `f64_rel_error` is how far the reference as published
(float32 network inside a float64 sampler) is from it.
"""

import contextlib

import numpy as np
import torch

import references as ref
from cases import DDPMPP
from hashed_weights import hashed_input
from record import fill_hashed, image, image_spec, nhwc, rel_error, rounded, summary

SHAPE = [2, 16, 16, 3]
LABELS = [1, 3]
NETWORK = dict(label_dim=4, augment_dim=9, model_channels=16, channel_mult=[1, 2],
               channel_mult_emb=4, num_blocks=1, attn_resolutions=[8], dropout=0.0, **DDPMPP)
CHOSEN = ["enc.16x16_conv.weight", "map_layer0.weight", "dec.16x16_up.affine.weight",
          "dec.16x16_aux_norm.weight", "dec.16x16_aux_conv.bias"]


def precond(path, kind, exact):
    """The reference's preconditioner `kind` around the tiny network, float64 if `exact`."""
    networks = ref.load(path, "training.networks")
    net = getattr(networks, kind)(img_resolution=16, img_channels=3, model_type="SongUNet",
                                  **NETWORK)
    fill_hashed(net.model)
    return (net.double() if exact else net).eval()


def labels(exact):
    return torch.eye(4)[LABELS].to(torch.float64 if exact else torch.float32)


def both(run):
    """run(exact) in published precision and in float64: (published, exact)."""
    single = run(False)
    with ref.exact_mode():
        return single, run(True)


def denoiser(path, kind):
    """D(x, sigma) of one preconditioner at three noise levels, with the c_noise it used."""
    x = image("input.x", SHAPE)

    def run(exact):
        net, seen = precond(path, kind, exact), []
        net.model.register_forward_pre_hook(lambda m, a: seen.append(float(a[1][0])))
        rows = []
        for sigma in (0.05, 0.7, 40.0):
            sigmas = torch.full([SHAPE[0]], sigma, dtype=torch.float64)
            with torch.no_grad():
                out = net(x.to(torch.float64) if exact else x, sigmas, labels(exact))
            rows.append((sigma, float(net.round_sigma(sigmas)[0]), seen[-1], out))
        return rows

    single, exact = both(run)
    values = [
        {"sigma": s, "round_sigma": rounded(r), "c_noise": rounded(c),
         **summary("output", nhwc(d), nhwc(f[3]), first=16)}
        for (s, r, c, d), f in zip(exact, single)
    ]
    channels = 6 if kind == "iDDPMPrecond" else 3
    return {"preconditioning": kind, "network_out_channels": channels, "values": values}


class FixedNoise:
    """The torch module with randn and randn_like replaced by given tensors."""

    def __init__(self, normal, noise):
        self.normal, self.noise = normal, noise

    def __getattr__(self, name):
        return getattr(torch, name)

    def randn(self, *_, **__):
        return self.normal

    def randn_like(self, x):
        return self.noise.to(x.dtype)


def edm_loss(path):
    normal = [0.5, -1.0]
    module = ref.load(path, "training.loss")

    def run(exact):
        dtype = torch.float64 if exact else torch.float32
        net = precond(path, "EDMPrecond", exact).train()
        module.torch = FixedNoise(torch.tensor(normal, dtype=dtype).view(2, 1, 1, 1),
                                  image("input.noise", SHAPE))
        try:
            loss = module.EDMLoss()(net, image("input.images", SHAPE).to(dtype), labels(exact))
        finally:
            module.torch = torch
        loss.mean().backward()
        grads = {n: p.grad for n, p in net.model.named_parameters() if p.grad is not None}
        return loss.detach(), grads

    (single, single_grads), (exact, grads) = both(run)
    total = torch.sqrt(sum((g**2).sum() for g in grads.values()))
    return {
        "formula": "mean of weight * (D(y + sigma n, sigma) - y)^2, "
                   "weight = (sigma^2 + 0.25) / (0.5 sigma)^2, ln sigma = 1.2 normal - 1.2",
        "inputs": {"y": image_spec("input.images", SHAPE), "n": image_spec("input.noise", SHAPE),
                   "normal": {"values": normal}},
        "sigma": rounded([float(np.exp(1.2 * v - 1.2)) for v in normal]),
        "loss": rounded(exact.mean()),
        "loss_per_sample": rounded(exact.mean(dim=(1, 2, 3)).tolist()),
        "f64_rel_error": rel_error(single.mean(), exact.mean()),
        "gradient_l2": rounded(total),
        "gradients": {n: summary(n, grads[n], single_grads[n]) for n in CHOSEN},
    }


@contextlib.contextmanager
def recording(noise, states):
    """A randn_like for the reference samplers: records each step's start, returns hashed noise."""

    def randn_like(x):
        step = len(states)
        states.append(x.clone())
        if not noise:
            return torch.zeros_like(x)
        return image(f"noise.{step}", SHAPE).to(x.dtype)

    yield randn_like


def trajectory(path, kind, sampler, options, noise=False):
    """Six steps of one of the reference's samplers; the state after every step."""
    latents = image("input.latents", SHAPE)
    generate = ref.load(path, "generate")

    def run(exact):
        net, states, levels = precond(path, kind, exact), [], []
        net.register_forward_pre_hook(lambda m, a: levels.append(float(a[1])))
        with torch.no_grad(), recording(noise, states) as randn_like:
            last = getattr(generate, sampler)(
                net, latents.to(torch.float64), labels(exact), randn_like, num_steps=6, **options)
        return states[:1], [*states[1:], last], levels

    (_, single, _), (start, exact, levels) = both(run)
    return {
        "preconditioning": kind,
        "sampler": sampler,
        "options": {"num_steps": 6, **options},
        "denoiser_sigmas": rounded(levels),
        "start_l2": rounded(start[0].norm()),
        "after_step": [summary("output", nhwc(e), nhwc(s), first=16)
                       for e, s in zip(exact, single)],
    }


def trajectories(path):
    out = {"edm_heun": trajectory(path, "EDMPrecond", "edm_sampler", {})}
    for solver in ("euler", "heun"):
        for disc in ("edm", "vp", "ve", "iddpm"):
            # sigma(t) = t, s(t) = 1: only the spacing of the noise levels differs
            out[f"linear_{disc}_{solver}"] = trajectory(
                path, "EDMPrecond", "ablation_sampler", dict(solver=solver, discretization=disc))
        out[f"original_vp_{solver}"] = trajectory(
            path, "VPPrecond", "ablation_sampler",
            dict(solver=solver, discretization="vp", schedule="vp", scaling="vp"))
        out[f"original_ve_{solver}"] = trajectory(
            path, "VEPrecond", "ablation_sampler",
            dict(solver=solver, discretization="ve", schedule="ve", scaling="none"))
        out[f"original_iddpm_{solver}"] = trajectory(
            path, "iDDPMPrecond", "ablation_sampler",
            dict(solver=solver, discretization="iddpm", schedule="linear", scaling="none"))
    out["edm_heun_churn"] = trajectory(
        path, "EDMPrecond", "edm_sampler",
        dict(S_churn=2, S_min=0.05, S_max=50, S_noise=1.003), noise=True)
    return out


def edm_golden(path):
    kinds = ["EDMPrecond", "VPPrecond", "VEPrecond", "iDDPMPrecond"]
    network = dict(img_resolution=16, in_channels=3, out_channels=3, **NETWORK)
    return {
        "network": {"model": "songunet", "config": network, "augment_labels": "none given",
                    "class_labels": {"values": LABELS, "meaning": "one-hot of label_dim"}},
        "denoised": {"x": image_spec("input.x", SHAPE),
                     "cases": [denoiser(path, kind) for kind in kinds]},
        "edm_loss": edm_loss(path),
        "sampling": {
            "latents": image_spec("input.latents", SHAPE),
            "noise": "step i draws hashed tensor 'noise.<i>' (NHWC, times sqrt(3)), i from 0",
            "state": "float64; the x of the reference, so scaled by s(t) where scaling is vp",
            "trajectories": trajectories(path),
        },
    }
