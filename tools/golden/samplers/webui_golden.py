"""Golden samplers and schedules of the webui and k-diffusion's schedules: samplers_webui.json,
schedules_webui.json.

    python webui_golden.py --webui CHECKOUT --commit HASH --out tests/golden/samplers

CHECKOUT is one of AUTOMATIC1111/stable-diffusion-webui, outside this repository.
"""

import argparse
import importlib
import importlib.metadata
import math
import pathlib
import sys
import types

import scipy
import torch

import files
import toy
import trajectories
import webui_reference

GRIDS = ("ve6", "ve3", "ve1", "ve20", "ve40")
STEPS = (1, 2, 3, 5, 6, 10, 11, 20, 30, 35, 50, 150)
UNIPC = [dict(variant=v, skip=s, order=o) for v, s, o in (
    ("bh1", "time_uniform", 3), ("bh2", "time_uniform", 3), ("bh2", "time_uniform", 2),
    ("vary_coeff", "time_uniform", 3), ("vary_coeff", "logSNR", 2), ("bh1", "time_quadratic", 3),
    ("bh1", "logSNR", 3), ("bh1", "time_uniform", 1))]
SAMPLERS = {
    "ddim": [dict(), dict(eta=0.5), dict(eta=1.0)],
    "ddim_cfgpp": [dict(), dict(eta=1.0)],
    "plms": [dict()],
    "unipc": UNIPC,
}


def alphas_cumprod():
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
    return torch.cumprod(1 - betas, dim=0)


class Model:
    """eps(x, t) of the toy for the timestep samplers; x of [1, 1, 1, 4] in VP coordinates."""

    def __init__(self, sigma_of):
        self.inner_model = types.SimpleNamespace(
            inner_model=types.SimpleNamespace(alphas_cumprod=alphas_cumprod()))
        self.sigma_of, self.times, self.sigmas = sigma_of, [], []

    def eps(self, x, sigma, uncond=False):
        k = x.reshape(1, -1) * math.sqrt(1 + sigma**2)
        return ((k - toy.denoise(k, sigma, uncond=uncond)) / sigma).reshape(x.shape)

    def __call__(self, x, t, **_):
        t = float(t.reshape(-1)[0])
        sigma = self.sigma_of(t)
        self.times.append(t)
        self.sigmas.append(sigma)
        self.last_noise_uncond = self.eps(x, sigma, True)
        return self.eps(x, sigma)


def table_sigma(t):
    cumulative = float(alphas_cumprod()[int(t)])
    return math.sqrt((1 - cumulative) / cumulative)


def timestep_case(webui, name, options, n):
    """A timestep sampler on the timesteps that the webui gives it for n steps."""
    implementation = webui("sd_samplers_timesteps_impl")
    steps = torch.clip(torch.asarray(list(range(0, 1000, 1000 // n))) + 1, 0, 999)
    extra, sigma_of = dict(options), table_sigma
    if name == "unipc":
        opts = webui("shared").opts
        opts.uni_pc_variant, opts.uni_pc_skip_type = options["variant"], options["skip"]
        opts.uni_pc_order, extra = options["order"], {"callback": lambda _: None}
        schedule = implementation.uni_pc.NoiseScheduleVP(
            "discrete", alphas_cumprod=alphas_cumprod())

        def sigma_of(t):
            return math.exp(-float(schedule.marginal_lambda(torch.tensor([t / 1000 + 1e-3]))))

    model, draws = Model(sigma_of), toy.Draws()
    first = table_sigma(999 if name == "unipc" else int(steps[-1]))
    scale = first / 14.6146412293 / math.sqrt(1 + first**2)
    start = [scale * v for v in toy.STARTS["ve"]]
    with draws.patched(), torch.no_grad():
        x = getattr(implementation, name)(
            model, torch.tensor(start).reshape(1, 1, 1, 4), steps, extra_args={}, disable=True,
            **extra)
    return {"sampler": name, "options": options, "n": n, "timesteps": steps.tolist(),
            "start": start, "x": x.reshape(-1).tolist(), "nfe": len(model.times),
            "draws": draws.count, "times": model.times, "evaluated": model.sigmas}


def k_cases(webui):
    """restart and lcm, which take sigmas."""
    functions = {"restart": webui("sd_samplers_extra").restart_sampler,
                 "lcm": webui("sd_samplers_lcm").sample_lcm}
    toy.GRIDS["ve40"] = toy.stored(toy.karras(40))
    for name, function in functions.items():
        for grid in GRIDS:
            for options in ({}, {"s_noise": 0.9}) if name == "restart" else ({},):
                def run(model, x, sigmas, draws, callback, f=function, o=options, k=name):
                    extra = {"noise_sampler": draws.sampler(x)} if k == "lcm" else {}
                    return f(model, x, sigmas, callback=callback, disable=True, **o, **extra)

                yield trajectories.case(
                    run, lambda: trajectories.Calls("ve"),
                    {"sampler": name, "options": options, "space": "ve", "grid": grid},
                    grid in ("ve6", "ve20", "ve40") and not options)


def samplers(webui):
    for name, variants in SAMPLERS.items():
        for options in variants:
            for n in (6, 3, 20, 2):
                try:
                    yield timestep_case(webui, name, options, n)
                except Exception as error:  # pylint: disable=broad-except
                    yield {"sampler": name, "options": options, "n": n,
                           "error": f"{type(error).__name__}: {error}"[:110]}


def listed(record, function):
    try:
        record["sigmas"] = [float(v) for v in function()]
    except Exception as error:  # pylint: disable=broad-except
        record["error"] = f"{type(error).__name__}: {error}"[:110]
    return record


def schedules(webui):
    """The webui's schedulers and k-diffusion's own functions, float32 as they are."""
    module, external = webui("sd_schedulers"), importlib.import_module("k_diffusion.external")
    cumulative = alphas_cumprod()
    table = (((1 - cumulative) / cumulative) ** 0.5).float()
    inner = external.DiscreteSchedule(table, False)
    low, high = float(table[0]), float(table[-1])
    for scheduler in module.schedulers[1:]:
        for xl in (False, True) if scheduler.name == "align_your_steps" else (False,):
            module.shared.sd_model.is_sdxl = xl
            for n in STEPS:
                options = {"inner_model": inner} if scheduler.need_inner_model else {}
                yield listed(
                    {"source": "webui", "schedule": scheduler.name, "sdxl": xl, "n": n},
                    lambda s=scheduler, k=n, o=options: s.function(
                        n=k, sigma_min=low, sigma_max=high, device="cpu", **o))
    sampling = sys.modules["k_diffusion.sampling"]
    for name, options in (("karras", dict(sigma_min=0.002, sigma_max=80.0)),
                          ("karras", dict(sigma_min=0.1, sigma_max=10.0)),
                          ("exponential", dict(sigma_min=0.1, sigma_max=10.0)),
                          ("polyexponential", dict(sigma_min=0.1, sigma_max=10.0, rho=2.0)),
                          ("vp", dict())):
        for n in STEPS:
            yield listed({"source": "k-diffusion", "schedule": name, "options": options, "n": n},
                         lambda f=f"get_sigmas_{name}", k=n, o=options: getattr(
                             sampling, f)(k, **o))
    sigma = torch.tensor([1e-4, 0.03, 0.5, 0.9, 1.0, 5.0, 14.0, 100.0])
    t = torch.tensor([0.0, 0.5, 250.0, 353.89, 500.5, 998.9, 999.0])
    yield {"source": "k-diffusion", "schedule": "table", "sigma": sigma.tolist(),
           "t_at_sigma": inner.sigma_to_t(sigma).tolist(),
           "t_at_sigma_quantized": inner.sigma_to_t(sigma, True).tolist(),
           "t": t.tolist(), "sigma_at_t": inner.t_to_sigma(t).tolist()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--webui", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    webui = webui_reference.load(args.webui)
    reference = {"stable-diffusion-webui": args.commit, "torch": torch.__version__,
                 "scipy": scipy.__version__,
                 "k-diffusion": importlib.metadata.version("k-diffusion")}
    files.write(args.out / "schedules_webui.json", {
        "reference": reference,
        "notes": "sigma range of the SD1 table, float32; karras and the rest of the k-diffusion "
                 "rows with their own options; beta with alpha = beta = .6.",
    }, list(schedules(webui)), 9)
    torch.set_default_dtype(torch.float64)
    rows = list(samplers(webui))
    torch.set_default_dtype(torch.float32)
    rows += list(k_cases(webui))
    files.write(args.out / "samplers_webui.json", {
        "reference": reference, "toy": toy.ABOUT, "starts": toy.STARTS,
        "fields": trajectories.FIELDS,
        "notes": "ddim, ddim_cfgpp, plms, unipc: float64, x in VP coordinates, ascending timesteps "
                 "(walked from the end; the first is where the walk ends), 'times' and 'evaluated' "
                 "the t and sigma of every call; the table of alphas in float64. unipc: times from "
                 "1000 (t - 1/1000) over t = 1 .. 1/1000, sigma from the log-alphas interpolated "
                 "in t; ends in VP coordinates at t = 1/1000. restart and lcm: as in "
                 "samplers_k_diffusion.json.",
        "grids_about": toy.GRIDS_ABOUT,
        "grids": {k: v for k, v in toy.GRIDS.items() if k in GRIDS},
    }, rows, 14)


if __name__ == "__main__":
    main()
