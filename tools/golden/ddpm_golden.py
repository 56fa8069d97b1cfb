"""Golden values of discrete-time diffusion (Nichol and Dhariwal, arXiv:2102.09672).

Beta tables, q_sample, the noise-prediction loss, the hybrid loss with learned variances and
the v-prediction target, on the tiny ADM networks of the golden cases.
"""

import numpy as np
import torch

import cases
import references as ref
from hashed_weights import hash_values
from record import fill_hashed, image, image_spec, nhwc, rel_error, rounded, summary

T = 1000
SHAPE = [2, 16, 16, 3]
ENTRIES = [0, 1, 2, 10, 250, 500, 750, 998, 999]
CHOSEN = ["input_blocks.0.0.weight", "time_embed.0.weight", "out.0.weight", "out.2.weight",
          "out.2.bias"]


def x_start():
    """Hashed image in [-1,1] with many values at the ends: clamp(1.25 value, -1, 1)."""
    v = hash_values("input.x_start", int(np.prod(SHAPE)))
    v = np.clip(1.25 * v, -1.0, 1.0).astype(np.float32).reshape(SHAPE)
    return torch.from_numpy(v).permute(0, 3, 1, 2).contiguous()


def diffusion(path, schedule, learned):
    """The reference's process: eps prediction; learned variances with the rescaled hybrid loss."""
    gd = ref.load(path, "guided_diffusion.gaussian_diffusion")
    return gd.GaussianDiffusion(
        betas=gd.get_named_beta_schedule(schedule, T),
        model_mean_type=gd.ModelMeanType.EPSILON,
        model_var_type=gd.ModelVarType.LEARNED_RANGE if learned else gd.ModelVarType.FIXED_LARGE,
        loss_type=gd.LossType.RESCALED_MSE if learned else gd.LossType.MSE,
    )


def tables(path, schedule):
    d = diffusion(path, schedule, False)
    names = ["betas", "alphas_cumprod", "posterior_variance", "posterior_log_variance_clipped",
             "posterior_mean_coef1", "posterior_mean_coef2"]
    return {
        "T": T,
        "entries": ENTRIES,
        **{n: {"values": [float(f"{v:.15g}") for v in getattr(d, n)[ENTRIES]],
               "sum": float(f"{getattr(d, n).sum():.15g}")} for n in names},
    }


def losses(paths, case_name, schedule, steps):
    """training_losses of the reference with its per-sample terms and some gradients."""
    case = next(c for c in cases.all_cases(paths) if c["name"] == case_name)
    learned = case["config"]["out_channels"] == 6
    process = diffusion(paths["guided_diffusion"], schedule, learned)

    def run(exact):
        dtype = torch.float64 if exact else torch.float32
        net = fill_hashed(case["build"]()).to(dtype)
        net.dtype = dtype
        y = {"y": torch.tensor([1, 3])} if case["config"]["num_classes"] else {}
        noise = image("input.noise", SHAPE).to(dtype)
        t = torch.tensor(steps)
        x_t = process.q_sample(x_start().to(dtype), t, noise)
        terms = process.training_losses(net, x_start().to(dtype), t, y, noise)
        terms["loss"].mean().backward()
        grads = {n: p.grad for n, p in net.named_parameters()}
        return x_t, {k: v.detach() for k, v in terms.items()}, grads

    single = run(False)
    with ref.exact_mode():
        exact = run(True)
    return {
        "network": case_name,
        "schedule": schedule,
        "loss_type": "mse + vb * T/1000, mean detached in vb" if learned else "mse",
        "t": steps,
        "q_sample": summary("output", nhwc(exact[0]), nhwc(single[0]), first=16),
        "terms_per_sample": {
            k: {"values": rounded(v.tolist()),
                "f64_rel_error": float(f"{rel_error(single[1][k], v):.3g}")}
            for k, v in exact[1].items()
        },
        "loss": rounded(exact[1]["loss"].mean()),
        "gradients": {n: summary(n, exact[2][n], single[2][n]) for n in CHOSEN},
    }


def v_target(path, schedule, steps):
    """v = sqrt(abar) noise - sqrt(1 - abar) x0 (Salimans and Ho, arXiv:2202.00512, App. D)."""
    abar = torch.from_numpy(diffusion(path, schedule, False).alphas_cumprod)[torch.tensor(steps)]
    abar = abar.view(-1, 1, 1, 1)
    x0, noise = x_start().double(), image("input.noise", SHAPE).double()
    v = abar.sqrt() * noise - (1 - abar).sqrt() * x0
    x_t = abar.sqrt() * x0 + (1 - abar).sqrt() * noise
    assert torch.allclose(abar.sqrt() * x_t - (1 - abar).sqrt() * v, x0)
    return {"schedule": schedule, "t": steps, **summary("output", nhwc(v), first=16)}


def ddpm_golden(paths):
    path = paths["guided_diffusion"]
    return {
        "inputs": {
            "x_start": {"hash": "input.x_start", "shape": SHAPE, "layout": "NHWC",
                        "scale": "clamp(1.25 * value, -1, 1)"},
            "noise": image_spec("input.noise", SHAPE),
            "y": {"values": [1, 3], "meaning": "class index, adm_full only"},
        },
        "tables": {s: tables(path, s) for s in ("linear", "cosine")},
        "losses": [
            losses(paths, "adm_plain", "linear", [17, 803]),
            losses(paths, "adm_plain", "cosine", [0, 999]),
            losses(paths, "adm_full", "linear", [17, 803]),
            losses(paths, "adm_full", "linear", [0, 999]),
            losses(paths, "adm_full", "cosine", [1, 500]),
        ],
        "v_target": [v_target(path, s, [17, 803]) for s in ("linear", "cosine")],
    }
