"""Golden trajectories of k-diffusion's samplers: writes samplers_k_diffusion.json.

    python k_diffusion_golden.py --out tests/golden/samplers

Needs torch, k-diffusion (installed without its dependencies), torchsde, torchdiffeq, scipy, tqdm.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import pathlib
import sys
import types

import torch

import files
import toy
import trajectories


def sampling():
    """k_diffusion.sampling without the packages that only training and image loading need."""
    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["torchvision.transforms"].functional = sys.modules[
        "torchvision.transforms.functional"]
    package = types.ModuleType("k_diffusion")
    package.__path__ = importlib.util.find_spec("k_diffusion").submodule_search_locations
    sys.modules["k_diffusion"] = package
    return importlib.import_module("k_diffusion.sampling")


CHURN = [dict(s_churn=2.0, s_noise=1.003),
         dict(s_churn=40.0, s_tmin=0.05, s_tmax=10.0, s_noise=1.003)]
ETA = [dict(eta=0.0), dict(eta=0.5), dict(eta=1.0, s_noise=0.9)]
OPTIONS = {
    "euler": CHURN, "heun": CHURN, "dpm_2": CHURN,
    "euler_ancestral": ETA, "dpm_2_ancestral": ETA, "dpmpp_2s_ancestral": ETA,
    "lms": [dict(order=1), dict(order=2), dict(order=3)],
    "dpm_fast": ETA[1:], "dpm_adaptive": [
        dict(order=2), dict(rtol=0.01, atol=0.001), dict(eta=1.0), dict(eta=0.5, s_noise=0.9),
        dict(pcoeff=0.2, icoeff=0.7, dcoeff=0.1)],
    "dpmpp_sde": ETA + [dict(r=0.3)],
    "dpmpp_2m": [],
    "dpmpp_2m_sde": ETA + [dict(solver_type="heun"), dict(solver_type="heun", eta=0.0),
                           dict(solver_type="heun", eta=0.5)],
    "dpmpp_3m_sde": ETA,
}
STOCHASTIC = ("ancestral", "sde", "dpm_fast", "dpm_adaptive")


def runner(module, name, options):
    function = getattr(module, f"sample_{name}")

    def run(model, x, sigmas, draws, callback):
        extra = dict(options)
        if any(word in name for word in STOCHASTIC):
            extra["noise_sampler"] = draws.sampler(x)
        return function(model, x, *trajectories.sigma_arguments(name, sigmas), callback=callback,
                        disable=True, **extra)

    return run


def cases(module):
    for name, variants in OPTIONS.items():
        for options in [{}] + variants:
            grids = ("ve6", "ve3", "ve1", "ve20", "ve6_open") if not options else ("ve6", "ve20")
            for grid in grids:
                names = dict(sampler=name, options=options, space="ve", grid=grid)
                detail = grid == "ve6" and not options
                yield trajectories.case(runner(module, name, options),
                                        lambda: trajectories.Calls("ve"), names, detail)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    module = sampling()
    head = {
        "reference": {"name": "k-diffusion", "version": importlib.metadata.version("k-diffusion"),
                      "torch": torch.__version__,
                      "torchsde": importlib.metadata.version("torchsde")},
        "toy": toy.ABOUT, "starts": toy.STARTS, "grids_about": toy.GRIDS_ABOUT,
        "grids": {k: v for k, v in toy.GRIDS.items() if k.startswith("ve")},
        "fields": trajectories.FIELDS,
        "notes": "defaults as in the reference: eta 1 (dpm_fast, dpm_adaptive 0), s_noise 1, order "
                 "4 (lms), r 1/2, solver_type midpoint; dpm_fast and dpm_adaptive get the smallest "
                 "non-zero sigma, the largest, and n = len - 1.",
    }
    files.write(args.out / "samplers_k_diffusion.json", head, list(cases(module)), 14)


if __name__ == "__main__":
    main()
