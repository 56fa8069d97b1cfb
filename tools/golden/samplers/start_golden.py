"""Golden start rules of image-to-image and of split runs: writes start_rules.json.

    python start_golden.py --comfyui CHECKOUT --webui CHECKOUT --commits HASH,HASH --out FOLDER
"""

import argparse
import ast
import importlib.util
import pathlib
import types

import diffusers
import torch

import comfyui_reference
import files
import webui_reference
from diffusers_golden import SD

STRENGTHS = (0.0, 0.02, 0.3, 0.5, 0.75, 0.999, 1.0)
STEPS = (1, 4, 6, 20, 30)
PIPELINES = {
    "sd": "stable_diffusion.pipeline_stable_diffusion_img2img",
    "sdxl": "stable_diffusion_xl.pipeline_stable_diffusion_xl_img2img",
    "sd3": "stable_diffusion_3.pipeline_stable_diffusion_3_img2img",
    "flux": "flux.pipeline_flux_img2img",
}


NOTES = (
    "webui: schedule_steps values of sigma, then x starts at sigmas[schedule_steps - t_enc - 1] "
    "(timestep samplers: timesteps[t_enc]). diffusers: the timesteps left of set_timesteps(steps). "
    "comfyui: the sigmas that the sampler gets, null where the latent comes back as it is.")


def webui_rules(webui):
    common, shared = webui("sd_samplers_common"), webui("shared")
    for fix in (False, True):
        shared.opts.img2img_fix_steps = fix
        for steps in STEPS:
            for strength in STRENGTHS:
                image = types.SimpleNamespace(steps=steps, denoising_strength=strength)
                total, last = common.setup_img2img_steps(image)
                yield {"source": "webui", "fix_steps": fix, "steps": steps, "strength": strength,
                       "schedule_steps": total, "t_enc": last}


def get_timesteps(name):
    """The pipeline's method, taken out of its file (the rest needs transformers)."""
    folder = pathlib.Path(importlib.util.find_spec("diffusers").submodule_search_locations[0])
    path = folder / "pipelines" / (PIPELINES[name].replace(".", "/") + ".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == "get_timesteps":
            scope, module = {}, ast.Module([node], [])
            exec(compile(module, str(path), "exec"), scope)  # pylint: disable=exec-used
            return scope["get_timesteps"]
    raise ValueError(f"{path}: no get_timesteps")


def diffusers_rules():
    for name in PIPELINES:
        method = get_timesteps(name)
        kinds = ("FlowMatchEulerDiscreteScheduler",) if name in ("sd3", "flux") else (
            "EulerDiscreteScheduler", "HeunDiscreteScheduler")
        for kind in kinds:
            scheduler = getattr(diffusers, kind)(**({"shift": 3.0} if "Flow" in kind else SD))
            for steps in STEPS:
                scheduler.set_timesteps(steps)
                self = types.SimpleNamespace(scheduler=scheduler)
                for strength in STRENGTHS:
                    times, count = method(self, steps, strength, "cpu")
                    yield {"source": "diffusers", "pipeline": name, "scheduler": kind,
                           "steps": steps, "strength": strength, "used_steps": int(count),
                           "timesteps": [float(t) for t in times]}
                for start in (0.2, 0.5, 0.8) if name == "sdxl" else ():
                    times, count = method(self, steps, 1.0, "cpu", start)
                    yield {"source": "diffusers", "pipeline": name, "scheduler": kind,
                           "steps": steps, "denoising_start": start, "used_steps": int(count),
                           "timesteps": [float(t) for t in times]}


def comfy_rules(comfy):
    """The sigmas that KSampler hands to the sampler for a start step, a last step and its flag."""
    samplers, seen = comfy.samplers(), []
    kept, samplers.sample = samplers.sample, lambda *a, **_: seen.append(a[7])
    model = comfyui_reference.Model(comfy.model_sampling("ve"))
    latent = torch.zeros(1)
    for denoise in (1.0, 0.5):
        for start, last, full in ((None, None, False), (2, None, False), (0, 4, False),
                                  (0, 4, True), (2, 4, True), (6, None, False), (9, 12, True)):
            sampler = samplers.KSampler(model, 6, "cpu", "euler", "karras", denoise)
            seen.clear()
            sampler.sample(latent, None, None, 1.0, latent_image=latent, start_step=start,
                           last_step=last, force_full_denoise=full)
            yield {"source": "comfyui", "steps": 6, "schedule": "karras", "denoise": denoise,
                   "start_step": start, "last_step": last, "force_full_denoise": full,
                   "sigmas": seen[0].tolist() if seen else None}
    samplers.sample = kept


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("comfyui", "webui", "out"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--commits", required=True)
    args = parser.parse_args()
    commits = zip(("ComfyUI", "stable-diffusion-webui"), args.commits.split(","))
    head = {"reference": {**dict(commits), "diffusers": diffusers.__version__}, "notes": NOTES}
    cases = [*webui_rules(webui_reference.load(args.webui)), *diffusers_rules(),
             *comfy_rules(comfyui_reference.load(args.comfyui))]
    files.write(args.out / "start_rules.json", head, cases, 9)


if __name__ == "__main__":
    main()
