"""Golden trajectories of diffusers' schedulers on the toy: writes samplers_diffusers.json.

    python diffusers_golden.py --out tests/golden/samplers

The toy stands for the network: at every step it is given what the scheduler makes of x, and answers
in the prediction type from D at the scheduler's own sigma. The double run replaces float32 by
float64 inside the scheduler's module; f32_error is the difference of the scheduler as it is.
"""

import argparse
import contextlib
import math
import pathlib
import sys

import diffusers
import numpy as np
import torch

import files
import toy

SD = dict(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
SPACE = {"k": "x = x0 + sigma n", "vp": "x = (x0 + sigma n) / sqrt(1 + sigma^2)",
         "flow": "x = (1 - sigma) x0 + sigma n", "edm": "x = x0 + sigma n"}


def each(base, *variants):
    return [dict(base, **v) for v in ({},) + variants]


LEADING = dict(timestep_spacing="leading", steps_offset=1)
TRAILING = dict(timestep_spacing="trailing")
KARRAS = dict(use_karras_sigmas=True)
V, X0 = dict(prediction_type="v_prediction"), dict(prediction_type="sample")
ORDERS = [dict(solver_order=o) for o in (1, 3)]
FLOW = dict(use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=3.0)
DPM = each(
    SD, *ORDERS, dict(solver_type="heun"), dict(algorithm_type="dpmsolver"),
    dict(algorithm_type="dpmsolver", solver_order=3, final_sigmas_type="sigma_min"),
    dict(algorithm_type="dpmsolver", solver_type="heun", final_sigmas_type="sigma_min"),
    dict(algorithm_type="sde-dpmsolver++"), dict(algorithm_type="sde-dpmsolver++", solver_order=1),
    dict(algorithm_type="sde-dpmsolver++", solver_type="heun"),
    dict(algorithm_type="sde-dpmsolver++", solver_order=3),
    dict(algorithm_type="sde-dpmsolver", final_sigmas_type="sigma_min"),
    KARRAS, dict(use_exponential_sigmas=True), dict(use_lu_lambdas=True),
    dict(final_sigmas_type="sigma_min"), dict(euler_at_final=True), dict(lower_order_final=False),
    LEADING, TRAILING, V, X0, FLOW, dict(FLOW, solver_order=3),
    dict(FLOW, algorithm_type="sde-dpmsolver++"))
UNIPC = each(
    SD, *ORDERS, dict(solver_type="bh1"), dict(solver_type="bh1", solver_order=3), KARRAS,
    dict(disable_corrector=[0]), dict(disable_corrector=[0, 1, 2, 3, 4, 5]), TRAILING, V,
    dict(final_sigmas_type="sigma_min"), dict(predict_x0=False), dict(lower_order_final=False),
    dict(solver_type="bh1", final_sigmas_type="sigma_min"),
    dict(solver_type="bh1", solver_order=3, final_sigmas_type="sigma_min"),
    dict(predict_x0=False, final_sigmas_type="sigma_min"),
    dict(lower_order_final=False, final_sigmas_type="sigma_min"),
    dict(KARRAS, solver_order=3, final_sigmas_type="sigma_min"),
    FLOW, dict(FLOW, solver_type="bh1", solver_order=3))
CONFIGS = {
    "EulerDiscreteScheduler": ("k", each(
        SD, LEADING, TRAILING, KARRAS, dict(use_exponential_sigmas=True),
        dict(use_beta_sigmas=True), V, X0, dict(final_sigmas_type="sigma_min"),
        dict(step=dict(s_churn=2.0, s_noise=1.003)),
        dict(V, **TRAILING, rescale_betas_zero_snr=True))),
    "EulerAncestralDiscreteScheduler": ("k", each(SD, LEADING, TRAILING, V)),
    "HeunDiscreteScheduler": ("k", each(SD, KARRAS, TRAILING)),
    "KDPM2DiscreteScheduler": ("k", each(SD, KARRAS)),
    "KDPM2AncestralDiscreteScheduler": ("k", each(SD, KARRAS)),
    "LMSDiscreteScheduler": ("k", each(SD, KARRAS, dict(step=dict(order=2)))),
    "DPMSolverSDEScheduler": ("k", each(SD, KARRAS)),
    "DDIMScheduler": ("vp", each(
        dict(SD, clip_sample=False), dict(set_alpha_to_one=False, **LEADING), TRAILING,
        dict(step=dict(eta=1.0)), dict(step=dict(eta=0.5)), V, X0,
        dict(step=dict(eta=1.0, use_clipped_model_output=True), clip_sample=True))),
    "DDPMScheduler": ("vp", each(
        dict(SD, clip_sample=False), dict(variance_type="fixed_large"), TRAILING, V)),
    "PNDMScheduler": ("vp", each(
        SD, dict(skip_prk_steps=True), dict(skip_prk_steps=True, set_alpha_to_one=True),
        dict(skip_prk_steps=True, **LEADING), dict(skip_prk_steps=True, **V))),
    "LCMScheduler": ("vp", each(dict(SD, clip_sample=False), V)),
    "TCDScheduler": ("vp", each(
        dict(SD, clip_sample=False), dict(step=dict(eta=0.0)), dict(step=dict(eta=1.0)))),
    "DPMSolverMultistepScheduler": ("vp", DPM),
    "DPMSolverSinglestepScheduler": ("vp", each(
        SD, *ORDERS, dict(solver_type="heun"), KARRAS, dict(lower_order_final=True, solver_order=3),
        dict(algorithm_type="dpmsolver", final_sigmas_type="sigma_min", solver_order=3),
        dict(algorithm_type="sde-dpmsolver++"), FLOW)),
    "UniPCMultistepScheduler": ("vp", UNIPC),
    "DEISMultistepScheduler": ("vp", each(SD, *ORDERS, KARRAS, FLOW)),
    "SASolverScheduler": ("vp", each(
        SD, dict(predictor_order=3, corrector_order=4), dict(predictor_order=1, corrector_order=1),
        KARRAS, dict(algorithm_type="noise_prediction"))),
    "FlowMatchEulerDiscreteScheduler": ("flow", each(
        dict(shift=3.0), dict(stochastic_sampling=True), KARRAS)),
    "FlowMatchHeunDiscreteScheduler": ("flow", each(dict(shift=3.0))),
    "FlowMatchLCMScheduler": ("flow", each(dict(shift=3.0))),
    "LTXEulerAncestralRFScheduler": ("flow", each({}, dict(eta=0.5), dict(s_noise=0.9))),
    "EDMEulerScheduler": ("edm", each({}, dict(sigma_schedule="exponential"), V,
                                      dict(step=dict(s_churn=2.0, s_noise=1.003)))),
    "EDMDPMSolverMultistepScheduler": ("edm", each(
        {}, *ORDERS, dict(solver_type="heun"), dict(algorithm_type="sde-dpmsolver++"), V)),
    "CosineDPMSolverMultistepScheduler": ("edm", each({}, dict(solver_order=1))),
}


class As:
    """A module with some attributes replaced."""

    def __init__(self, module, **replaced):
        self.__dict__.update(module=module, **replaced)

    def __getattr__(self, name):
        return getattr(self.module, name)


@contextlib.contextmanager
def prepared(name, dtype, draws):
    """The scheduler class; its module's noise recorded and, for float64, its float32 replaced."""
    kind = getattr(diffusers, name)
    module = sys.modules[kind.__module__]
    changed = {"randn_tensor": lambda shape, dtype=None, **_: torch.full(
        tuple(shape), draws.value(), dtype=dtype)}
    changed["BrownianTreeNoiseSampler"] = lambda x, *_, **__: draws.sampler(x)
    if dtype == torch.float64:
        changed["torch"] = As(torch, float32=torch.float64)
        changed["np"] = As(np, float32=np.float64)
    saved = {key: getattr(module, key) for key in changed if hasattr(module, key)}
    torch.set_default_dtype(dtype)
    try:
        for key in saved:
            setattr(module, key, changed[key])
        yield kind
    finally:
        for key, value in saved.items():
            setattr(module, key, value)
        torch.set_default_dtype(torch.float32)


def level(scheduler, index, t):
    """The sigma (of x0 + sigma n, or of the flow) that the scheduler's x has at a call."""
    if not hasattr(scheduler, "sigmas") or not len(scheduler.sigmas) or hasattr(
            scheduler, "final_alpha_cumprod"):
        cumulative = float(scheduler.alphas_cumprod[int(t)])
        return math.sqrt((1 - cumulative) / cumulative)
    if not getattr(scheduler, "state_in_first_order", True):
        if hasattr(scheduler, "sigmas_interpol"):
            ancestral = type(scheduler).__name__.startswith("KDPM2Ancestral")
            return float(scheduler.sigmas_interpol[index - 1 if ancestral else index])
        if getattr(scheduler, "mid_point_sigma", None) is not None:
            return float(scheduler.mid_point_sigma)
    return float(scheduler.sigmas[index])


def answer(scheduler, space, x, sigma):
    """The network output, in the scheduler's prediction type, that stands for the toy's D."""
    kind = getattr(scheduler.config, "prediction_type", "flow_prediction")
    if space == "flow":
        return (x - toy.denoise(x, sigma, "flow")) / sigma
    k = x * math.sqrt(1 + sigma**2) if space == "vp" else x
    clean = toy.denoise(k, sigma)
    if space == "edm":
        at = torch.tensor(sigma)
        none, one = (scheduler.precondition_outputs(x, torch.full_like(x, f), at)
                     for f in (0.0, 1.0))
        return (clean - none) / (one - none)
    noise, alpha = (k - clean) / sigma, 1 / math.sqrt(1 + sigma**2)
    return {"epsilon": noise, "sample": clean,
            "v_prediction": alpha * noise - alpha * sigma * clean}[kind]


def start(scheduler, space, sigma):
    if space == "flow":
        return toy.STARTS["flow"]
    scale = sigma / 14.6146412293 / (math.sqrt(1 + sigma**2) if space == "vp" else 1)
    return [scale * v for v in toy.STARTS["ve"]]


def once(name, space, config, n, dtype):
    """Runs n steps; returns the record of the run."""
    draws = toy.Draws()
    options = {k: v for k, v in config.items() if k != "step"}
    with prepared(name, dtype, draws) as kind, draws.patched(), torch.no_grad():
        scheduler = kind(**options)
        extra = {}
        if name in ("FlowMatchEulerDiscreteScheduler", "LTXEulerAncestralRFScheduler"):
            extra["sigmas"] = [float(v) for v in np.linspace(1, 1 / n, n)]
        if name == "LTXEulerAncestralRFScheduler":
            extra["sigmas"] = extra["sigmas"] + [0.0]
        scheduler.set_timesteps(**extra) if extra else scheduler.set_timesteps(n)
        times = list(scheduler.timesteps)
        first = level(scheduler, 0, times[0])
        begin = start(scheduler, space, first)
        x, used = torch.tensor([begin], dtype=dtype), []
        for index, t in enumerate(times):
            sigma = level(scheduler, index, t)
            if sigma == 0:
                break
            used.append(sigma)
            if hasattr(scheduler, "scale_model_input"):
                scheduler.scale_model_input(x, t)
            output = answer(scheduler, space, x.to(dtype), sigma).to(dtype)
            x = scheduler.step(output, t, x, **config.get("step", {})).prev_sample
    return {"start": begin, "timesteps": [float(t) for t in times], "sigmas": used,
            "nfe": len(used), "draws": draws.count, "x": x[0].double().tolist()}


def case(name, space, config, n):
    space = "flow" if config.get("use_flow_sigmas") else space
    names = {"scheduler": name, "config": config, "space": space, "n": n}
    try:
        record = once(name, space, config, n, torch.float64)
        single = once(name, space, config, n, torch.float32)
    except Exception as error:  # pylint: disable=broad-except
        return {**names, "error": f"{type(error).__name__}: {error}"[:110]}
    error = max(abs(a - b) for a, b in zip(record["x"], single["x"]))
    return {**names, **record, "f32_error": float(f"{error:.2g}")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    head = {
        "reference": {"name": "diffusers", "version": diffusers.__version__,
                      "torch": torch.__version__, "numpy": np.__version__},
        "toy": toy.ABOUT, "spaces": SPACE,
        "notes": "config: what differs from the class's defaults; 'step' in it: arguments of "
                 "step(). sigmas: level of x at every call of the toy; D is evaluated there, "
                 "whatever the timestep says. start: x at the beginning, x: at the end, in the "
                 "space's coordinates (vp: of the final alpha). FlowMatchEuler and LTX get the "
                 "sigmas linspace(1, 1/n, n). edm: the class's own preconditioning inverted.",
    }
    cases = [case(name, space, config, n) for name, (space, configs) in CONFIGS.items()
             for i, config in enumerate(configs) for n in ((6, 1, 3, 20) if i == 0 else (6,))]
    files.write(args.out / "samplers_diffusers.json", head, cases, 14)


if __name__ == "__main__":
    main()
