"""Golden schedules, sigma tables and preconditioning of ComfyUI: writes schedules_comfyui.json.

    python comfyui_schedules.py --comfyui CHECKOUT --commit HASH --out tests/golden/samplers
"""

import argparse
import pathlib

import scipy
import torch

import comfyui_reference
import files

STEPS = (1, 2, 3, 5, 6, 10, 20, 30, 35, 50, 150)
MODELS = {
    "sd1": ("ModelSamplingDiscrete", "EPS", {}),
    "zsnr": ("ModelSamplingDiscrete", "V_PREDICTION", {}),
    "flow3": ("ModelSamplingDiscreteFlow", "CONST", dict(shift=3.0)),
    "flow1": ("ModelSamplingDiscreteFlow", "CONST", dict(shift=1.0)),
    "flux115": ("ModelSamplingFlux", "CONST", dict(shift=1.15)),
    "edm80": ("ModelSamplingContinuousEDM", "EDM",
              dict(sigma_min=0.002, sigma_max=80.0, sigma_data=0.5)),
    "svd": ("ModelSamplingContinuousEDM", "V_PREDICTION",
            dict(sigma_min=0.002, sigma_max=700.0, sigma_data=1.0)),
    "cascade": ("StableCascadeSampling", "EPS", dict(shift=1.0)),
    "cosmos": ("ModelSamplingCosmosRFlow", "COSMOS_RFLOW",
               dict(sigma_min=0.002, sigma_max=80.0, sigma_data=1.0)),
}
CUSTOM = "nodes_custom_sampler"
NODES = (
    (CUSTOM, "KarrasScheduler", dict(sigma_max=80.0, sigma_min=0.002, rho=7.0)),
    (CUSTOM, "KarrasScheduler", dict(sigma_max=14.614642, sigma_min=0.0291675, rho=3.0)),
    (CUSTOM, "ExponentialScheduler", dict(sigma_max=80.0, sigma_min=0.002)),
    (CUSTOM, "PolyexponentialScheduler", dict(sigma_max=14.614642, sigma_min=0.0291675, rho=1.0)),
    (CUSTOM, "PolyexponentialScheduler", dict(sigma_max=14.614642, sigma_min=0.0291675, rho=2.0)),
    (CUSTOM, "LaplaceScheduler", dict(sigma_max=14.614642, sigma_min=0.0291675, mu=0.0, beta=0.5)),
    (CUSTOM, "LaplaceScheduler", dict(sigma_max=14.614642, sigma_min=0.0291675, mu=1.0, beta=0.7)),
    (CUSTOM, "VPScheduler", dict(beta_d=19.9, beta_min=0.1, eps_s=0.001)),
    (CUSTOM, "SDTurboScheduler", dict(model="sd1", denoise=1.0)),
    (CUSTOM, "SDTurboScheduler", dict(model="sd1", denoise=0.5)),
    (CUSTOM, "BetaSamplingScheduler", dict(model="sd1", alpha=0.5, beta=0.7)),
    (CUSTOM, "BetaSamplingScheduler", dict(model="flow3", alpha=0.5, beta=0.7)),
    ("nodes_align_your_steps", "AlignYourStepsScheduler", dict(model_type="SD1", denoise=1.0)),
    ("nodes_align_your_steps", "AlignYourStepsScheduler", dict(model_type="SDXL", denoise=1.0)),
    ("nodes_align_your_steps", "AlignYourStepsScheduler", dict(model_type="SVD", denoise=1.0)),
    ("nodes_align_your_steps", "AlignYourStepsScheduler", dict(model_type="SD1", denoise=0.5)),
    ("nodes_gits", "GITSScheduler", dict(coeff=1.2, denoise=1.0)),
    ("nodes_gits", "GITSScheduler", dict(coeff=0.8, denoise=1.0)),
    ("nodes_gits", "GITSScheduler", dict(coeff=1.5, denoise=1.0)),
    ("nodes_gits", "GITSScheduler", dict(coeff=1.2, denoise=0.5)),
    ("nodes_optimalsteps", "OptimalStepsScheduler", dict(model_type="FLUX", denoise=1.0)),
    ("nodes_optimalsteps", "OptimalStepsScheduler", dict(model_type="Wan", denoise=1.0)),
    ("nodes_optimalsteps", "OptimalStepsScheduler", dict(model_type="Chroma", denoise=1.0)),
    ("nodes_optimalsteps", "OptimalStepsScheduler", dict(model_type="FLUX", denoise=0.5)),
    ("nodes_flux", "Flux2Scheduler", dict(width=512, height=512)),
    ("nodes_flux", "Flux2Scheduler", dict(width=1024, height=1024)),
    ("nodes_flux", "Flux2Scheduler", dict(width=2048, height=2048)),
    ("nodes_lt", "LTXVScheduler", dict(max_shift=2.05, base_shift=0.95, stretch=True,
                                       terminal=0.1)),
    ("nodes_lt", "LTXVScheduler", dict(max_shift=2.05, base_shift=0.95, stretch=False,
                                       terminal=0.1)),
)


def build(comfy, name):
    base, prediction, settings = MODELS[name]
    kind = type(name, (getattr(comfy.models, base), getattr(comfy.models, prediction)), {})
    model = kind(zsnr=True) if name == "zsnr" else kind()
    if settings:
        model.set_parameters(**settings)
    return model


def attempt(record, key, function):
    try:
        value = function()
        record[key] = value.tolist() if isinstance(value, torch.Tensor) else value
    except Exception as error:  # pylint: disable=broad-except
        record["error"] = f"{type(error).__name__}: {error}"[:90]
    return record


def schedules(comfy):
    samplers = comfy.samplers()
    for model_name in MODELS:
        if model_name in ("flow1", "cascade", "cosmos", "zsnr"):
            continue
        model = build(comfy, model_name)
        for schedule in samplers.SCHEDULER_NAMES:
            for n in STEPS:
                record = {"kind": "schedule", "schedule": schedule, "model": model_name, "n": n}
                yield attempt(record, "sigmas",
                              lambda m=model, s=schedule, k=n: samplers.calculate_sigmas(m, s, k))


def denoised(comfy):
    """KSampler's lists: parts of a longer one for denoise < 1, the penultimate discarded."""
    samplers = comfy.samplers()
    for model_name in ("sd1", "flow3"):
        model = comfyui_reference.Model(build(comfy, model_name))
        for schedule in ("normal", "karras", "simple", "beta"):
            for sampler in ("euler", "dpm_2"):
                for n in (1, 6, 20):
                    for denoise in (1.0, 0.75, 0.5, 0.1):
                        record = {"kind": "ksampler", "schedule": schedule, "model": model_name,
                                  "sampler": sampler, "n": n, "denoise": denoise}
                        yield attempt(record, "sigmas", lambda r=record, m=model: samplers.KSampler(
                            m, r["n"], "cpu", r["sampler"], r["schedule"], r["denoise"]).sigmas)


def nodes(comfy):
    for file, name, options in NODES:
        node = comfy.node(file, name)
        arguments = dict(options)
        if "model" in arguments:
            arguments["model"] = comfyui_reference.Model(build(comfy, arguments["model"]))
        for n in STEPS:
            record = {"kind": "node", "schedule": name, "options": options, "n": n}
            yield attempt(record, "sigmas",
                          lambda k=n, f=node, a=arguments: f.execute(steps=k, **a)[0])


def tables(comfy):
    t = [0.0, 0.5, 250.0, 353.89, 500.5, 998.9, 999.0, 1200.0]
    sigma = [1e-4, 0.03, 0.5, 0.9, 1.0, 5.0, 14.0, 100.0]
    percent = [0.0, 1e-4, 0.1, 0.2, 0.5, 0.8, 0.999, 1.0]
    for name in MODELS:
        model = build(comfy, name)
        index = sorted({0, 1, 2, 250, 500, 750, 998, 999, len(model.sigmas) - 1})
        record = {"kind": "table", "model": name, "length": len(model.sigmas), "index": index,
                  "sigma_at_index": [float(model.sigmas[i]) for i in index]}
        unit = 1.0 if name in ("sd1", "zsnr", "flow1", "flow3") else 1e-3
        unit = 2e-3 if name in ("edm80", "svd") else unit
        record["t"] = [v * unit for v in t[1:] if v * unit < 1 or unit == 1.0]
        attempt(record, "sigma_at_t",
                lambda m=model, r=record: [float(m.sigma(torch.tensor(v))) for v in r["t"]])
        record["sigma"] = [v for v in sigma if v <= 1 or not name.startswith("fl")]
        attempt(record, "t_at_sigma", lambda m=model, r=record: [
            float(m.timestep(torch.tensor(v))) for v in r["sigma"]])
        record["percent"] = percent
        attempt(record, "sigma_at_percent",
                lambda m=model: [float(m.percent_to_sigma(p)) for p in percent])
        yield record


def preconditioning(comfy):
    """Input and output scaling, starting noise and the inverse at the end, on single numbers."""
    x, output, latent = torch.tensor([0.7]), torch.tensor([-0.3]), 0.25
    for prediction in ("EPS", "V_PREDICTION", "EDM", "CONST", "X0", "COSMOS_RFLOW"):
        for sigma_data in (1.0, 0.5):
            for sigma in (0.05, 0.9, 14.0):
                if prediction == "CONST" and sigma > 1:
                    continue
                model = getattr(comfy.models, prediction)()
                model.sigma_data = sigma_data
                level = torch.tensor([sigma])
                yield {
                    "kind": "preconditioning", "prediction": prediction, "sigma_data": sigma_data,
                    "sigma": sigma, "x": 0.7, "output": -0.3, "latent": latent,
                    "input": float(model.calculate_input(level, x)),
                    "denoised": float(model.calculate_denoised(level, output, x)),
                    "start": float(model.noise_scaling(level, x.clone(), latent)),
                    "start_max": float(model.noise_scaling(level, x.clone(), latent, True)),
                    "end": float(model.inverse_noise_scaling(level, x.clone())),
                }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comfyui", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    comfy = comfyui_reference.load(args.comfyui)
    head = {
        "reference": {"name": "ComfyUI", "commit": args.commit, "torch": torch.__version__,
                      "scipy": scipy.__version__},
        "models": {name: {"sampling": m[0], "prediction": m[1], **m[2]}
                   for name, m in MODELS.items()},
        "notes": "sd1 is the scaled-linear table .00085 .. .012 (SDXL has the same); zsnr its zero "
                 "terminal SNR form. Lists are the reference's float32. 'error': it raises. start: "
                 "noise_scaling(sigma, noise x, latent), start_max the same at max denoise; end: "
                 "inverse_noise_scaling(sigma, x).",
    }
    cases = [case for part in (schedules, denoised, nodes, tables, preconditioning)
             for case in part(comfy)]
    files.write(args.out / "schedules_comfyui.json", head, cases, 10)


if __name__ == "__main__":
    main()
