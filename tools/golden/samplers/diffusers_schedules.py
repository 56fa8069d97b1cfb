"""Golden timesteps, sigmas and tables of diffusers' schedulers: writes schedules_diffusers.json.

    python diffusers_schedules.py --out tests/golden/samplers
"""

import argparse
import pathlib

import diffusers
import numpy as np
import torch
from diffusers.schedulers import AysSchedules

import files
from diffusers_golden import KARRAS, LEADING, SD, TRAILING, each

STEPS = (1, 2, 3, 5, 6, 10, 20, 30, 50, 150)
SPACINGS = each(SD, LEADING, TRAILING)
CONVERTED = [dict(SD, **KARRAS), dict(SD, use_exponential_sigmas=True),
             dict(SD, use_beta_sigmas=True)]
FLOW = dict(use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=3.0)
CONFIGS = {
    "EulerDiscreteScheduler": SPACINGS + CONVERTED + [
        dict(SD, **TRAILING, prediction_type="v_prediction", rescale_betas_zero_snr=True),
        dict(SD, final_sigmas_type="sigma_min")],
    "HeunDiscreteScheduler": SPACINGS[:1], "LMSDiscreteScheduler": SPACINGS[:1],
    "DPMSolverMultistepScheduler": SPACINGS + CONVERTED + [
        dict(SD, use_lu_lambdas=True), dict(SD, final_sigmas_type="sigma_min"), dict(SD, **FLOW)],
    "UniPCMultistepScheduler": SPACINGS[:1] + [dict(SD, **FLOW)],
    "DEISMultistepScheduler": [dict(SD, **FLOW)],
    "DDIMScheduler": SPACINGS, "DDPMScheduler": SPACINGS,
    "PNDMScheduler": [SD, dict(SD, skip_prk_steps=True), dict(SD, skip_prk_steps=True, **LEADING)],
    "LCMScheduler": [SD], "TCDScheduler": [SD],
    "EDMEulerScheduler": [{}, dict(sigma_schedule="exponential")],
    "CosineDPMSolverMultistepScheduler": [{}, dict(sigma_schedule="karras")],
}
RAMP = "linspace(1, 1/n, n)"
FLOWS = (
    dict(shift=3.0), dict(shift=1.0), dict(shift=3.0, use_karras_sigmas=True),
    dict(shift=3.0, use_exponential_sigmas=True), dict(shift=3.0, use_beta_sigmas=True),
    dict(shift=3.0, invert_sigmas=True), dict(shift=1.0, shift_terminal=0.1),
    dict(use_dynamic_shifting=True, mu=1.15), dict(use_dynamic_shifting=True, mu=0.5),
    dict(use_dynamic_shifting=True, mu=2.05, shift_terminal=0.1),
    dict(use_dynamic_shifting=True, mu=1.15, time_shift_type="linear"),
)


def listed(names, scheduler, *arguments, **options):
    """One case: what set_timesteps leaves in the scheduler."""
    try:
        scheduler.set_timesteps(*arguments, **options)
        names["timesteps"] = [float(t) for t in scheduler.timesteps]
        if getattr(scheduler, "sigmas", None) is not None and len(scheduler.sigmas) < 900:
            names["sigmas"] = [float(s) for s in scheduler.sigmas]
        if hasattr(scheduler, "init_noise_sigma"):
            names["init_noise_sigma"] = float(scheduler.init_noise_sigma)
    except Exception as error:  # pylint: disable=broad-except
        names["error"] = f"{type(error).__name__}: {error}"[:110]
    return names


def schedules():
    for name, configs in CONFIGS.items():
        for config in configs:
            for n in STEPS:
                yield listed({"kind": "schedule", "scheduler": name, "config": config, "n": n},
                             getattr(diffusers, name)(**config), n)
    flow = diffusers.FlowMatchEulerDiscreteScheduler
    for config in FLOWS:
        options = {k: v for k, v in config.items() if k != "mu"}
        for n in STEPS:
            for given in (None, RAMP):
                extra = {"mu": config["mu"]} if "mu" in config else {}
                if given:
                    extra["sigmas"] = [float(v) for v in np.linspace(1, 1 / n, n)]
                names = {"kind": "flow", "scheduler": flow.__name__, "config": config, "n": n,
                         "given": given}
                yield listed(names, flow(**options), n, **extra)
    for key, times in AysSchedules.items():
        if "Timesteps" in key:
            scheduler = diffusers.DPMSolverMultistepScheduler(**SD)
            yield listed({"kind": "ays", "table": key, "scheduler": "DPMSolverMultistepScheduler"},
                         scheduler, timesteps=times)
        else:
            yield {"kind": "ays", "table": key, "sigmas": [float(v) for v in times]}


def tables():
    index = [0, 1, 250, 500, 750, 998, 999]
    for name in ("linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid"):
        for start, end in ((0.0001, 0.02), (0.00085, 0.012)):
            for zero in (False, True):
                if zero and name in ("sigmoid", "squaredcos_cap_v2"):
                    continue
                table = diffusers.DDPMScheduler(
                    beta_schedule=name, beta_start=start, beta_end=end,
                    rescale_betas_zero_snr=zero).alphas_cumprod
                yield {"kind": "table", "beta_schedule": name, "beta_start": start,
                       "beta_end": end, "zero_snr": zero, "index": index,
                       "alphas_cumprod": [float(table[i]) for i in index]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    head = {
        "reference": {"name": "diffusers", "version": diffusers.__version__,
                      "torch": torch.__version__, "numpy": np.__version__},
        "notes": "config: what differs from the class's defaults; lists are the reference's "
                 "float32. flow: without 'given' sigmas the class's own list.",
    }
    files.write(args.out / "schedules_diffusers.json", head, [*schedules(), *tables()], 9)


if __name__ == "__main__":
    main()
