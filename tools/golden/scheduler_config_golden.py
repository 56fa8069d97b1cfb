"""Noise levels of diffusers' schedulers: python scheduler_config_golden.py --out tests/golden.

What each scheduler of Stable Diffusion's pipelines makes of the scheduler_config.json of a folder
that may be another scheduler's, as Scheduler.from_config(pipeline.scheduler.config) does: noise
levels, or timesteps where it has no levels.
"""

import argparse
import platform
from pathlib import Path

import diffusers
import torch

from generate import write

BETAS = dict(num_train_timesteps=1000, beta_start=0.00085, beta_end=0.012,
             beta_schedule="scaled_linear", prediction_type="epsilon")
FOLDERS = {
    "sd1": dict(BETAS, _class_name="PNDMScheduler", set_alpha_to_one=False, skip_prk_steps=True,
                steps_offset=1, clip_sample=False),
    "sdxl": dict(BETAS, _class_name="EulerDiscreteScheduler", interpolation_type="linear",
                 timestep_spacing="leading", steps_offset=1, use_karras_sigmas=False,
                 set_alpha_to_one=False, clip_sample=False, skip_prk_steps=True),
    "linspace": dict(BETAS, _class_name="DPMSolverMultistepScheduler",
                     timestep_spacing="linspace"),
    "trailing": dict(BETAS, _class_name="DDIMScheduler", timestep_spacing="trailing",
                     set_alpha_to_one=True, clip_sample=False),
    "karras": dict(BETAS, _class_name="DPMSolverMultistepScheduler", use_karras_sigmas=True,
                   timestep_spacing="leading", steps_offset=1),
    "exponential": dict(BETAS, _class_name="DPMSolverMultistepScheduler",
                        use_exponential_sigmas=True),
    "sigma_min": dict(BETAS, _class_name="DPMSolverMultistepScheduler",
                      final_sigmas_type="sigma_min"),
    "lcm": dict(BETAS, _class_name="LCMScheduler", original_inference_steps=50,
                timestep_scaling=10.0, set_alpha_to_one=True, steps_offset=1,
                timestep_spacing="leading"),
    "lcm_100": dict(BETAS, _class_name="LCMScheduler", original_inference_steps=100),
}
# by ebb's names of samplers
SCHEDULERS = {
    "ddim": "DDIM", "ddpm": "DDPM", "plms": "PNDM", "euler": "EulerDiscrete",
    "euler_ancestral": "EulerAncestralDiscrete", "heun": "HeunDiscrete", "lms": "LMSDiscrete",
    "dpm_2": "KDPM2Discrete", "dpm_2_ancestral": "KDPM2AncestralDiscrete",
    "dpmpp_sde": "DPMSolverSDE", "dpmpp_2m": "DPMSolverMultistep",
    "dpm_solver_singlestep": "DPMSolverSinglestep", "deis": "DEISMultistep",
    "uni_pc": "UniPCMultistep", "sa_solver": "SASolver", "lcm": "LCM", "tcd": "TCD",
}
EDM = {
    "edm": dict(_class_name="EDMDPMSolverMultistepScheduler", sigma_min=0.002, sigma_max=80.0,
                sigma_data=0.5, prediction_type="epsilon", rho=7.0),
    "edm_rho": dict(_class_name="EDMEulerScheduler", sigma_min=0.01, sigma_max=50.0, rho=5.0,
                    sigma_data=0.5),
    "edm_exponential": dict(_class_name="EDMDPMSolverMultistepScheduler",
                            sigma_schedule="exponential"),
}
EDM_SCHEDULERS = {"euler": "EDMEuler", "dpmpp_2m": "EDMDPMSolverMultistep"}
TWICE = ("HeunDiscrete", "KDPM2Discrete", "KDPM2AncestralDiscrete", "DPMSolverSDE")


def numbers(values):
    return [float(f"{float(v):.9g}") for v in values]


def case(folder, config, sampler, kind, steps):
    scheduler = getattr(diffusers, kind + "Scheduler").from_config(dict(config))
    out = {"folder": folder, "sampler": sampler, "scheduler": kind, "steps": steps}
    scheduler.set_timesteps(steps)
    if kind in ("DDIM", "DDPM", "PNDM", "LCM", "TCD"):
        times = numbers(scheduler.timesteps)
        final = kind == "DDIM" and float(scheduler.final_alpha_cumprod) != 1
        final |= kind == "PNDM" and float(scheduler.final_alpha_cumprod) != 1
        # PLMS evaluates the second level twice
        once = [t for i, t in enumerate(times) if i == 0 or t != times[i - 1]]
        return out | {"timesteps": once, "sigma_min": final}
    sigmas = numbers(scheduler.sigmas)
    if kind in TWICE:  # two evaluations of a step
        sigmas = [s for i, s in enumerate(sigmas) if i == 0 or s != sigmas[i - 1]]
    return out | {"sigmas": sigmas}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    cases = []
    for folder, config in FOLDERS.items():
        for sampler, kind in SCHEDULERS.items():
            if folder == "sd1" or sampler not in ("plms",):
                cases += [case(folder, config, sampler, kind, n) for n in (4, 10)]
    for folder, config in EDM.items():
        for sampler, kind in EDM_SCHEDULERS.items():
            cases += [case(folder, config, sampler, kind, n) for n in (4, 10)]
    write(args.out / "scheduler_configs.json", {
        "generator": {"python": platform.python_version(), "torch": torch.__version__,
                      "diffusers": diffusers.__version__},
        "folders": FOLDERS | EDM, "cases": cases})


if __name__ == "__main__":
    main()
