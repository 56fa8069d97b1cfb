"""Golden guidance of ComfyUI, diffusers, the webui, sd-dynamic-thresholding: guidance.json.

    python guidance_golden.py --comfyui CHECKOUT --webui CHECKOUT --dynthres CHECKOUT
        --commits HASH,HASH,HASH --out tests/golden/samplers

All three checkouts lie outside this repository.
"""

import argparse
import importlib
import pathlib
import sys

import diffusers
import torch
from diffusers import guiders

import comfyui_reference
import files
import webui_reference

SHAPE = [2, 4, 8, 8]
WAVES = {"cond": (0.37, 0.1), "uncond": (0.53, 1.2), "x": (0.71, 2.3), "third": (0.29, 0.4)}
SCALES = (1.0, 4.0, 7.5)


def wave(name):
    i = torch.arange(2 * 4 * 8 * 8, dtype=torch.float64)
    a, b = WAVES[name]
    return torch.sin(a * i + b).reshape(SHAPE)


C, U, X, T = (wave(name) for name in ("cond", "uncond", "x", "third"))


def result(source, rule, options, out):
    """One case; `out` is a tensor, or several for consecutive calls."""
    outs = [out] if isinstance(out, torch.Tensor) else out
    return {"source": source, "rule": rule, "options": options,
            "out": [files.ends_and_sums(o.double().reshape(-1).tolist()) for o in outs]}


def comfy_run(comfy, model, scale, sigma, pair=(C, U)):
    """ComfyUI's sampling_function with the hooks that a node set, on given predictions."""
    hooks = {
        "sampler_calc_cond_batch_function": lambda _: list(pair),
        "sampler_pre_cfg_function": [v[0] for v in model.set.get(
            "set_model_sampler_pre_cfg_function", [])],
        "sampler_post_cfg_function": [v[0] for v in model.set.get(
            "set_model_sampler_post_cfg_function", [])],
        "disable_cfg1_optimization": True,
    }
    if "set_model_sampler_cfg_function" in model.set:
        hooks["sampler_cfg_function"] = model.set["set_model_sampler_cfg_function"][0][0]
    inner = type("Inner", (), {"current_patcher": model})
    return comfy.samplers().sampling_function(
        inner, X, torch.full([2], sigma), "u", "c", scale, hooks)


COMFY_NODES = (
    ("nodes_cfg", "CFGZeroStar", [dict()]), ("nodes_cfg", "CFGNorm", [dict(strength=1.0)]),
    ("nodes_tcfg", "TCFG", [dict()]), ("nodes_mahiro", "Mahiro", [dict()]),
    ("nodes_apg", "APG", [dict(eta=1.0, norm_threshold=5.0, momentum=0.0),
                          dict(eta=0.0, norm_threshold=15.0, momentum=0.0),
                          dict(eta=0.5, norm_threshold=0.0, momentum=-0.5)]),
    ("nodes_eps", "EpsilonScaling", [dict(scaling_factor=1.005)]),
    ("nodes_model_advanced", "RescaleCFG", [dict(multiplier=0.7), dict(multiplier=0.0)]),
)


def comfy_nodes(comfy):
    for file, name, variants in COMFY_NODES:
        node = comfy.node(file, name)
        for options in variants:
            for scale in SCALES:
                for sigma in (0.8, 5.0):
                    model = comfyui_reference.Model(comfy.model_sampling("ve"))
                    if name == "RescaleCFG":
                        node().patch(model, **options)
                    else:
                        node.execute(model, **options)
                    outs = [comfy_run(comfy, model, scale, sigma)]
                    if options.get("momentum"):
                        outs += [comfy_run(comfy, model, scale, 0.5 * sigma, (T, U)),
                                 comfy_run(comfy, model, scale, sigma, (C, U))]
                    yield result("comfyui", name, {**options, "scale": scale, "sigma": sigma}, outs)
    for scale in SCALES:
        yield result("comfyui", "CFG", {"scale": scale},
                     comfy_run(comfy, comfyui_reference.Model(), scale, 1.0))


def comfy_guiders(comfy):
    samplers = comfy.samplers()
    perp = comfy.node("nodes_perpneg", "perp_neg")
    for scale in SCALES:
        for strength in (0.0, 1.0, 0.5):
            yield result("comfyui", "PerpNeg", {"scale": scale, "neg_scale": strength},
                         perp(X, C, U, T, strength, scale))
    dual = comfy.node("nodes_custom_sampler", "Guider_DualCFG")
    kept, samplers.calc_cond_batch = samplers.calc_cond_batch, lambda *_: [U, T, C]
    for nested in (False, True):
        for first, second in ((8.0, 8.0), (4.0, 1.5)):
            guider = dual.__new__(dual)
            guider.conds, guider.inner_model = {}, None
            guider.set_cfg(first, second, nested)
            yield result("comfyui", "DualCFG", {"cfg1": first, "cfg2": second, "nested": nested},
                         guider.predict_noise(X, torch.full([2], 1.0), {}))
    samplers.calc_cond_batch = kept


DIFFUSERS = (
    ("ClassifierFreeGuidance", [dict(), dict(guidance_rescale=0.7),
                                dict(use_original_formulation=True)]),
    ("ClassifierFreeZeroStarGuidance", [dict(zero_init_steps=0), dict(zero_init_steps=1)]),
    ("AdaptiveProjectedGuidance", [
        dict(), dict(adaptive_projected_guidance_rescale=3.0, eta=0.0),
        dict(adaptive_projected_guidance_momentum=-0.5, eta=0.5,
             adaptive_projected_guidance_rescale=2.0),
        dict(adaptive_projected_guidance_norm_dim=[1]), dict(use_original_formulation=True)]),
    ("MagnitudeAwareGuidance", [dict(), dict(alpha=4.0)]),
    ("TangentialClassifierFreeGuidance", [dict()]),
    ("SkipLayerGuidance", [dict(skip_layer_guidance_layers=[7], skip_layer_guidance_start=0.0,
                                skip_layer_guidance_stop=1.0)]),
)


def norm_over(x, p="fro", dim=None, keepdim=False, **_):
    """torch.norm for what diffusers asks of it: torch 2.11 refuses three dimensions by default."""
    return torch.linalg.vector_norm(x, 2 if p == "fro" else p, dim, keepdim)


def guided(guider, step, *predictions):
    guider.set_state(step, 10, torch.tensor(500))
    return guider.forward(*predictions).pred


def diffusers_guiders():
    for name, variants in DIFFUSERS:
        for options in variants:
            for scale in SCALES:
                guider = getattr(guiders, name)(guidance_scale=scale, **options)
                extra = (T,) if name == "SkipLayerGuidance" else ()
                outs = [guided(guider, 0, C, U, *extra), guided(guider, 1, T, U, *extra)]
                yield result("diffusers", name, {**options, "scale": scale}, outs)
    for name, key in (("ClassifierFreeGuidance", "cfg"), ("SkipLayerGuidance", "slg")):
        for steps in (10, 20, 28, 30):
            for start, stop in ((0.0, 1.0), (0.01, 0.2), (0.1, 0.5), (0.0, 0.2)):
                if key == "cfg":
                    guider = guiders.ClassifierFreeGuidance(start=start, stop=stop)
                else:
                    guider = guiders.SkipLayerGuidance(
                        skip_layer_guidance_layers=[7], skip_layer_guidance_start=start,
                        skip_layer_guidance_stop=stop)
                on = []
                for step in range(steps):
                    guider.set_state(step, steps, torch.tensor(0))
                    if getattr(guider, f"_is_{key}_enabled")():
                        on.append(step)
                yield {"source": "diffusers", "rule": f"{name} window", "options": {
                    "start": start, "stop": stop, "steps": steps}, "active_steps": on}


def imagen_threshold():
    for ratio, limit in ((0.995, 1.0), (0.9, 1.5), (0.995, 3.0)):
        scheduler = diffusers.DDIMScheduler(thresholding=True, dynamic_thresholding_ratio=ratio,
                                            sample_max_value=limit)
        yield result("diffusers", "dynamic_threshold", {
            "ratio": ratio, "max": limit, "input": "2 cond"}, scheduler._threshold_sample(2 * C))


def mimic_threshold(path):
    sys.path.insert(0, str(path))
    kind = importlib.import_module("dynthres_core").DynThresh
    plans = [("Constant", p, m, s, v, sep, 1.0) for p in (1.0, 0.9) for m in (7.0,)
             for s in ("MEAN", "ZERO") for v in ("AD", "STD") for sep in (True, False)]
    plans += [(mode, 0.95, 7.0, "MEAN", "AD", True, 0.5) for mode in kind.Modes]
    for mode, percentile, mimic, startpoint, variability, separate, phi in plans:
        options = dict(mimic_scale=mimic, threshold_percentile=percentile, mimic_mode=mode,
                       mimic_scale_min=1.0, cfg_mode=mode, cfg_scale_min=2.0, sched_val=3.0,
                       experiment_mode=0, max_steps=10, separate_feature_channels=separate,
                       scaling_startpoint=startpoint, variability_measure=variability,
                       interpolate_phi=phi)
        rule = kind(**options)
        rule.step = 3
        yield result("sd-dynamic-thresholding", "mimic", {**options, "step": 3, "scale": 12.0},
                     rule.dynthresh(C.clone(), U.clone(), 12.0, None))


def webui_rules(webui):
    denoiser = webui("sd_samplers_cfg_denoiser").CFGDenoiser
    self = type("Self", (), {"image_cfg_scale": 1.5})()
    stacked = torch.cat([C, T, U])
    yield result("webui", "edit_model", {"scale": 7.5, "image_scale": 1.5},
                 denoiser.combine_denoised_for_edit_model(self, stacked, 7.5))
    conds = [[(0, 1.0), (2, 0.6)], [(1, 1.0), (3, -0.4)]]
    yield result("webui", "and", {"scale": 7.5, "weights": [
        {"cond": 1.0, "third": 0.6}, {"cond": 1.0, "third": -0.4}]},
        denoiser.combine_denoised(self, stacked, conds, U, 7.5))


NOTES = (
    "Inputs of shape [2,4,8,8], float64: element i (flat) of a wave is sin(a i + b), waves: name "
    "-> (a, b). cond, uncond, third, and x for the rules that look at it. A case with several "
    "outputs: consecutive calls. ComfyUI: predictions are D; APG with momentum: second call on "
    "(third, uncond) at half the sigma, third call back at sigma. diffusers: steps 0 and 1 of 10, "
    "the second on (third, uncond); SkipLayerGuidance: third is the skipped prediction. PerpNeg: "
    "positive cond, negative uncond, empty third. DualCFG: negative uncond, middle third, positive "
    "cond. edit_model: image-conditional third. mimic: 'scale' is the cfg scale before its own "
    "mode. Long results: the first 8, last 24, and the sums of x, x^2, x sin(i), x cos(3i).")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("comfyui", "webui", "dynthres", "out"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--commits", required=True)
    args = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    norm = torch.norm
    comfy, webui = comfyui_reference.load(args.comfyui), webui_reference.load(args.webui)
    names = ("ComfyUI", "stable-diffusion-webui", "sd-dynamic-thresholding")
    head = {"reference": {**dict(zip(names, args.commits.split(","))),
                          "diffusers": diffusers.__version__, "torch": torch.__version__},
            "shape": SHAPE, "waves": WAVES, "notes": NOTES}
    cases = [*comfy_nodes(comfy), *comfy_guiders(comfy), *imagen_threshold(),
             *mimic_threshold(args.dynthres), *webui_rules(webui)]
    torch.norm = norm_over
    cases += diffusers_guiders()
    torch.norm = norm
    files.write(args.out / "guidance.json", head, cases, 12)


if __name__ == "__main__":
    main()
