"""Golden runs of diffusers' pipelines: python whole_run_golden.py --out tests/golden --merges FILE.

What pipelines decide beside the network and the scheduler, at the small sizes of
text_to_image_golden.py, from latents to pixels in float32: the branch of an empty negative prompt
of Stable Diffusion XL, and distilled guidance. And runs of two passes, the second one at a larger
size, put together of diffusers' scheduler and network, torch's resampling and Pillow's.
"""

import argparse
import gzip
import platform
from pathlib import Path

import text_to_image_golden as base  # sets what torch reads at its start

import diffusers
import numpy as np
import torch
import transformers
from PIL import Image

import ldm_cases
import ldm_golden
import tokenizer_golden
from generate import write
from record import nhwc, summary

SIDE, SEED = 64, 7
LCM = dict(base.SD1, guidance_channels=8)
XL_LCM = dict(base.XL, guidance_channels=8)
EULER = (diffusers.EulerDiscreteScheduler, dict(timestep_spacing="leading", steps_offset=1),
         dict(sampler="euler", schedule="leading"))
CONSISTENCY = (diffusers.LCMScheduler, {}, dict(sampler="lcm", schedule="lcm"))
CASES = {
    # force_zeros_for_empty_prompt of model_index.json
    "xl_empty_zeros": dict(unet=base.XL, by=EULER, steps=8, guidance=7.0, zeros=True),
    "xl_empty_encoded": dict(unet=base.XL, by=EULER, steps=8, guidance=7.0, zeros=False),
    "sd1_lcm": dict(unet=LCM, by=CONSISTENCY, steps=4, guidance=8.5),
    "xl_lcm": dict(unet=XL_LCM, by=CONSISTENCY, steps=4, guidance=8.0),
    "sd1_distilled_euler": dict(unet=LCM, by=EULER, steps=6, guidance=3.0),
}


def pipeline_of(case, unet, scheduler, vae, xl):
    parts = dict(vae=vae, text_encoder=None, tokenizer=None, unet=unet, scheduler=scheduler)
    if xl:
        return diffusers.StableDiffusionXLPipeline(
            **parts, text_encoder_2=None, tokenizer_2=None, add_watermarker=False,
            force_zeros_for_empty_prompt=case.get("zeros", True))
    parts.update(safety_checker=None, feature_extractor=None, requires_safety_checker=False)
    kind = (diffusers.LatentConsistencyModelPipeline if case["by"] is CONSISTENCY
            else diffusers.StableDiffusionPipeline)
    return kind(**parts)


def run(name, case, tokenizer):
    c = {**ldm_cases.DEFAULTS, **case["unet"]}
    xl = c["vector"] > 0
    unet = ldm_cases.unet(c)
    ldm_golden.fill(unet, ldm_cases.names_of(unet, c))
    unet.register_to_config(sample_size=SIDE // 8)
    texts = base.XL_TEXTS if xl else [base.TEXT]
    models = [base.text_model(t) for t in texts]
    vae = base.autoencoder(base.AUTOENCODER)
    scale = 0.13025 if xl else 0.18215
    vae.register_to_config(scaling_factor=scale)
    kind, options, ours = case["by"]
    pipeline = pipeline_of(case, unet, kind(**base.BETAS, **options), vae, xl)
    pipeline.set_progress_bar_config(disable=True)
    positive, pooled = base.encoded(tokenizer, models, base.PROMPT, xl)
    call = dict(prompt_embeds=positive, num_inference_steps=case["steps"],
                guidance_scale=case["guidance"], height=SIDE, width=SIDE,
                generator=torch.manual_seed(SEED), output_type="latent")
    if xl:
        call["pooled_prompt_embeds"] = pooled
    if case.get("zeros") is False:
        negative, n_pooled = base.encoded(tokenizer, models, "", xl)
        call.update(negative_prompt_embeds=negative, negative_pooled_prompt_embeds=n_pooled)
    x = pipeline(**call).images
    pixels = vae.decode(x / scale).sample.clamp(-1, 1)
    out = {"case": name, "unet": c, "texts": texts, "autoencoder": base.AUTOENCODER,
           "prompt": base.PROMPT, "negative": "", "guidance": case["guidance"], "seed": SEED,
           "steps": case["steps"], "height": SIDE, "width": SIDE, **ours,
           "latents": summary("latents", nhwc(x), first=16),
           "pixels": summary("pixels", nhwc(pixels), first=16)}
    return out | ({"zeros": case["zeros"]} if "zeros" in case else {})


HIRES = {
    "hires_bilinear": dict(scale=1.5, upscaler="latent", mode=dict(mode="bilinear")),
    "hires_antialiased": dict(scale=2, upscaler="latent-bicubic-antialiased",
                              mode=dict(mode="bicubic", antialias=True)),
    "hires_lanczos": dict(scale=1.5, upscaler="lanczos", mode=None),
}


def enlarged(x, case, vae):
    """Latents in the second pass's size."""
    size = [round(side * case["scale"]) for side in x.shape[2:]]
    if case["mode"]:
        return torch.nn.functional.interpolate(x, size=size, **case["mode"])
    pixels = vae.decode(x / 0.18215).sample.clamp(-1, 1)
    picture = ((pixels[0].permute(1, 2, 0) / 2 + 0.5) * 255).round().to(torch.uint8).numpy()
    large = Image.fromarray(picture).resize((8 * size[1], 8 * size[0]), Image.LANCZOS)
    again = torch.from_numpy(np.array(large)).float().permute(2, 0, 1)[None] / 127.5 - 1
    return vae.encode(again).latent_dist.mean * 0.18215


def hires(name, case, tokenizer, steps=8, strength=0.5, guidance=5.0):
    """A run, and the last half of another one from its result in a larger size."""
    c = {**ldm_cases.DEFAULTS, **base.SD1}
    unet = ldm_cases.unet(c)
    ldm_golden.fill(unet, ldm_cases.names_of(unet, c))
    vae = base.autoencoder(base.AUTOENCODER)
    model = base.text_model(base.TEXT)
    states = torch.cat([base.encoded(tokenizer, [model], p, False)[0]
                        for p in (base.NEGATIVE, base.PROMPT)])
    kind, options, ours = EULER

    def sampled(x, first):
        scheduler = kind(**base.BETAS, **options)
        scheduler.set_timesteps(steps)
        scheduler.set_begin_index(first)
        noise = torch.randn(x.shape, generator=torch.manual_seed(SEED))
        times = scheduler.timesteps[first:]
        x = scheduler.add_noise(x, noise, times[:1]) if first else \
            noise * scheduler.init_noise_sigma
        for t in times:
            both = scheduler.scale_model_input(torch.cat([x, x]), t)
            negative, positive = unet(both, t, encoder_hidden_states=states).sample.chunk(2)
            x = scheduler.step(negative + guidance * (positive - negative), t, x).prev_sample
        return x
    x = sampled(torch.zeros(1, 4, SIDE // 8, SIDE // 8), 0)
    x = sampled(enlarged(x, case, vae), steps - int(steps * strength))
    pixels = vae.decode(x / 0.18215).sample.clamp(-1, 1)
    return {"case": name, "unet": c, "texts": [base.TEXT], "autoencoder": base.AUTOENCODER,
            "prompt": base.PROMPT, "negative": base.NEGATIVE, "guidance": guidance, "seed": SEED,
            "steps": steps, "height": SIDE, "width": SIDE, **ours,
            "hires": {"scale": case["scale"], "upscaler": case["upscaler"], "strength": strength},
            "latents": summary("latents", nhwc(x)[0], first=16),
            "pixels": summary("pixels", nhwc(pixels)[0], first=16)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--merges", type=Path, required=True,
                        help="clip_merges.txt.gz, as scripts/setup fetches it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = gzip.open(args.merges, "rt", encoding="utf-8").read().split("\n")
    tokenizer = tokenizer_golden.reference(lines[1:48895])
    with torch.no_grad():
        runs = [run(name, case, tokenizer) for name, case in CASES.items()]
        runs += [hires(name, case, tokenizer) for name, case in HIRES.items()]
    write(args.out / "whole_runs.json", {
        "generator": {"python": platform.python_version(), "torch": torch.__version__,
                      "diffusers": diffusers.__version__,
                      "transformers": transformers.__version__,
                      "rule": "tools/golden/hashed_weights.py"}, "runs": runs})


if __name__ == "__main__":
    main()
