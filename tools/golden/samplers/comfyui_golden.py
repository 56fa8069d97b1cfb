"""Golden trajectories of ComfyUI's samplers: writes samplers_comfyui.json.

    python comfyui_golden.py --comfyui CHECKOUT --commit HASH --out tests/golden/samplers

CHECKOUT holds comfyanonymous/ComfyUI outside this repository; it is imported, never copied.
Needs torch, torchsde, scipy, tqdm, einops, pillow.
"""

import argparse
import pathlib

import torch

import comfyui_reference
import files
import toy
import trajectories

CHURN = [dict(s_churn=2.0, s_noise=1.003),
         dict(s_churn=40.0, s_tmin=0.05, s_tmax=10.0, s_noise=1.003)]
ETA = [dict(eta=0.0), dict(eta=0.5), dict(eta=1.0, s_noise=0.9)]
TAU = [dict(tau=dict(start=1e9, end=0.0, eta=eta)) for eta in (0.0, 0.5, 1.0)]
ALL_TAU = TAU[2]
SA = TAU + [dict(ALL_TAU, s_noise=0.9), dict(ALL_TAU, simple_order_2=True),
            dict(ALL_TAU, predictor_order=2, corrector_order=0, simple_order_2=True),
            dict(TAU[0], predictor_order=2, corrector_order=0),
            dict(ALL_TAU, predictor_order=2, corrector_order=2),
            dict(ALL_TAU, predictor_order=2, corrector_order=2, simple_order_2=True),
            dict(TAU[0], predictor_order=3, corrector_order=0)]
ORDERS = [dict(max_order=order) for order in (1, 2, 3)]
OPTIONS = {
    "euler": CHURN, "heun": CHURN, "dpm_2": CHURN, "heunpp2": CHURN,
    "euler_ancestral": ETA, "dpm_2_ancestral": ETA, "dpmpp_2s_ancestral": ETA,
    "lms": [dict(order=1), dict(order=2), dict(order=3)],
    "dpm_fast": ETA[1:], "dpm_adaptive": [
        dict(order=2), dict(rtol=0.01, atol=0.001), dict(eta=1.0), dict(eta=0.5, s_noise=0.9),
        dict(pcoeff=0.2, icoeff=0.7, dcoeff=0.1)],
    "dpmpp_sde": ETA + [dict(r=0.3)],
    "dpmpp_2m": [],
    "dpmpp_2m_sde": ETA + [dict(solver_type="heun", eta=0.0), dict(solver_type="heun", eta=0.5)],
    "dpmpp_2m_sde_heun": [],
    "dpmpp_3m_sde": ETA,
    "ddpm": [], "lcm": [],
    "ipndm": ORDERS, "ipndm_v": ORDERS,
    "deis": [dict(max_order=order, deis_mode=mode) for mode in ("tab", "rhoab")
             for order in (1, 2, 3, 4)],
    "euler_cfg_pp": [], "euler_ancestral_cfg_pp": ETA,
    "dpmpp_2s_ancestral_cfg_pp": ETA, "dpmpp_2m_cfg_pp": [],
    "res_multistep": [dict(s_noise=0.9)], "res_multistep_cfg_pp": [],
    "res_multistep_ancestral": ETA, "res_multistep_ancestral_cfg_pp": ETA,
    "gradient_estimation": [dict(ge_gamma=1.5)], "gradient_estimation_cfg_pp": [dict(ge_gamma=1.5)],
    "er_sde": [dict(max_stage=1), dict(max_stage=2), dict(s_noise=0.9),
               dict(solver_type="ODE"), dict(solver_type="ODE", max_stage=2),
               dict(solver_type="Reverse-time SDE", eta=1.0),
               dict(solver_type="Reverse-time SDE", eta=0.5)],
    "seeds_2": ETA + [dict(solver_type="phi_2"), dict(solver_type="phi_2", eta=0.0),
                      dict(r=0.3), dict(r=0.7, solver_type="phi_2", eta=0.5)],
    "exp_heun_2_x0": [dict(solver_type="phi_1")], "exp_heun_2_x0_sde": ETA,
    "seeds_3": ETA + [dict(r_1=0.25, r_2=0.6)],
    "sa_solver": SA, "sa_solver_pece": SA,
    "uni_pc": [], "uni_pc_bh2": [],
}
NO_NOISE_SAMPLER = {"euler", "heun", "dpm_2", "heunpp2", "lms", "dpmpp_2m", "ipndm", "ipndm_v",
                    "deis", "euler_cfg_pp", "dpmpp_2m_cfg_pp", "gradient_estimation",
                    "gradient_estimation_cfg_pp", "exp_heun_2_x0", "uni_pc", "uni_pc_bh2"}
NOTES = (
    "defaults as in the reference: eta 1 (dpm_fast, dpm_adaptive 0), s_noise 1, order 4 (lms), "
    "max_order 4 (ipndm, ipndm_v) or 3 (deis, deis_mode tab), r 1/2, r_1 1/3, r_2 2/3, ge_gamma 2, "
    "max_stage 3, predictor_order 3, corrector_order 4, solver_type midpoint (dpmpp_2m_sde), phi_1 "
    "(seeds_2), phi_2 (exp_heun_2_x0), ER-SDE (er_sde). dpm_fast and dpm_adaptive get the smallest "
    "non-zero sigma, the largest, and n = len - 1. sa_solver: tau(sigma') = eta where start >= "
    "sigma' >= end, else 0; without the option the range of percent .2 to .8 (tau_default). "
    "uni_pc: the function's own sigma list, penultimate not discarded here. er_sde: its 200-point "
    "sums, which the reference keeps in float32, in float64 here.")


class Model(trajectories.Calls):
    """What ComfyUI's samplers see: a denoiser with the model_sampling of the space behind it."""

    def __init__(self, space, model_sampling):
        super().__init__(space)
        self.inner_model = self
        self.model_patcher = self
        self.model_sampling = model_sampling

    def get_model_object(self, _):
        return self.model_sampling

    def __call__(self, x, sigma, model_options=None, **_):
        denoised = super().__call__(x, sigma)
        for function in (model_options or {}).get("sampler_post_cfg_function", []):
            denoised = function({"denoised": denoised, "model": self, "sigma": sigma, "input": x,
                                 "uncond_denoised": toy.denoise(x, sigma, self.space, uncond=True)})
        return denoised


def er_sde_options(extra):
    """The arguments that the sampler's node makes of its solver_type and eta."""
    kind, eta = extra.pop("solver_type", "ER-SDE"), extra.pop("eta", 1.0)
    if kind == "ODE":
        extra["s_noise"], eta = 0.0, 0.0
    if kind != "ER-SDE":
        extra["noise_scaler"] = lambda v: v ** (eta + 1)
    return extra


def runner(comfy, name, options):
    def run(model, x, sigmas, draws, callback):
        extra = dict(options)
        if "tau" in extra:
            tau = extra.pop("tau")
            extra["tau_func"] = comfy.sa_solver.get_tau_interval_func(
                tau["start"], tau["end"], tau["eta"])
        if name == "er_sde":
            extra = er_sde_options(extra)
        if name not in NO_NOISE_SAMPLER:
            extra["noise_sampler"] = draws.sampler(x)
        arguments = [s.clone() if isinstance(s, torch.Tensor) else s
                     for s in trajectories.sigma_arguments(name, sigmas)]
        arguments = arguments if len(arguments) == 1 else [
            s.item() if isinstance(s, torch.Tensor) else s for s in arguments]
        if name.startswith("uni_pc"):
            return comfy.unipc(name)(model, x, *arguments, extra_args={}, disable=True, **extra)
        return comfy.sampler(name)(model, x, *arguments, extra_args={}, callback=callback,
                                   disable=True, **extra)

    return run


def skipped(name, grid):
    """The discarding grid is for the samplers that ComfyUI gives it; its uni_pc knows no flow."""
    if grid == "ve6_discard":
        return name not in ("dpm_2", "dpm_2_ancestral", "uni_pc", "uni_pc_bh2")
    return name.startswith("uni_pc") and grid.startswith("flow")


def cases(comfy):
    for name, variants in OPTIONS.items():
        for options in [{}] + variants:
            grids = ("6", "20") if options else (
                "6", "3", "1", "20", "6_open", "6_part", "6_discard")
            for space in ("ve", "flow"):
                for grid in (space + g for g in grids):
                    if grid not in toy.GRIDS or skipped(name, grid):
                        continue
                    sampling = comfy.model_sampling(space)
                    names = dict(sampler=name, options=options, space=space, grid=grid)
                    yield trajectories.case(runner(comfy, name, options),
                                            lambda s=space, m=sampling: Model(s, m), names,
                                            grid in ("ve6", "flow6") and not options)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comfyui", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    comfy = comfyui_reference.load(args.comfyui)
    tau = {space: [float(comfy.model_sampling(space).percent_to_sigma(p)) for p in (0.2, 0.8)]
           for space in ("ve", "flow")}
    head = {
        "reference": {"name": "ComfyUI", "commit": args.commit, "torch": torch.__version__},
        "toy": toy.ABOUT, "starts": toy.STARTS, "grids_about": toy.GRIDS_ABOUT, "grids": toy.GRIDS,
        "fields": trajectories.FIELDS, "notes": NOTES, "tau_default": tau,
        "flow_model": "CONST with the discrete flow table of shift 3: the first sigma of a list "
                      "that starts at >= 1 becomes shift(1 - 1e-4) in the samplers on lambda",
    }
    files.write(args.out / "samplers_comfyui.json", head, list(cases(comfy)), 14)


if __name__ == "__main__":
    main()
