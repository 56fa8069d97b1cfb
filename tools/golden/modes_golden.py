"""Golden runs that start from a picture: python modes_golden.py --out tests/golden --merges FILE.

diffusers' own pipelines of image to image, inpainting (with a plain network and with one of nine
channels) and editing by instructions, at the small sizes of text_to_image_golden.py, from latents
to pixels in float32.
"""

import text_to_image_golden as base  # sets what torch reads at its start

import diffusers
import torch

import ldm_cases
import ldm_golden
from record import nhwc, summary

SIDE, STEPS, GUIDANCE, SEED = 64, 20, 5.0, 7
INPAINT = dict(base.SD1, extra_channels=5)
CASES = {
    "image_euler": dict(scheduler="euler", strength=0.6),
    "image_ddim": dict(scheduler="ddim", strength=0.35),
    "image_dpmpp_2m": dict(scheduler="dpmpp_2m", strength=0.6),
    "mask_euler": dict(scheduler="euler", strength=0.6, mask=True),
    "mask_ddim": dict(scheduler="ddim", strength=0.6, mask=True),
    "trained_ddim": dict(scheduler="ddim", strength=0.8, mask=True, unet=INPAINT),
}


def picture():
    """Bytes [H,W,3], by a rule that the test repeats."""
    y, x, c = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), torch.arange(3),
                             indexing="ij")
    return ((7 * x + 13 * y + 50 * c) % 256).to(torch.uint8)


def mask():
    """Bytes [H,W]: a rectangle."""
    m = torch.zeros(SIDE, SIDE, dtype=torch.uint8)
    m[16:48, 8:40] = 255
    return m


def mean_from_second(vae):
    """All encodings but the first (those of masked pictures) are the posterior's mean."""
    encode, calls = vae.encode, []

    def encode_next(pixels):
        out = encode(pixels)
        calls.append(pixels)
        if len(calls) > 1:
            out.latent_dist.std = torch.zeros_like(out.latent_dist.std)
        return out
    vae.encode = encode_next


def run(name, case, tokenizer):
    c = {**ldm_cases.DEFAULTS, **case.get("unet", base.SD1)}
    unet = ldm_cases.unet(c)
    ldm_golden.fill(unet, ldm_cases.names_of(unet, c))
    unet.register_to_config(sample_size=64)
    text = base.text_model(base.TEXT)
    vae = base.autoencoder(base.AUTOENCODER)
    kind, options = base.SCHEDULERS[case["scheduler"]]
    scheduler = kind(**base.BETAS, **options)
    negative, positive = (base.encoded(tokenizer, [text], p, False)[0]
                          for p in (base.NEGATIVE, base.PROMPT))
    parts = dict(text_encoder=None, tokenizer=None, unet=unet, scheduler=scheduler,
                 safety_checker=None, feature_extractor=None, requires_safety_checker=False)
    masked = case.get("mask", False)
    pipeline = (diffusers.StableDiffusionInpaintPipeline if masked
                else diffusers.StableDiffusionImg2ImgPipeline)(vae=vae, **parts)
    pipeline.set_progress_bar_config(disable=True)
    if c.get("extra_channels", 0):
        mean_from_second(vae)
    image = picture().permute(2, 0, 1)[None].float() / 255
    call = dict(image=image, strength=case["strength"], num_inference_steps=STEPS,
                guidance_scale=GUIDANCE, prompt_embeds=positive, negative_prompt_embeds=negative,
                generator=torch.manual_seed(SEED), output_type="latent")
    if masked:
        call.update(mask_image=(mask()[None, None].float() / 255), height=SIDE, width=SIDE)
    x = pipeline(**call).images
    pixels = vae.decode(x / 0.18215).sample.clamp(-1, 1)
    return {"case": name, "unet": c, "texts": [base.TEXT], "autoencoder": base.AUTOENCODER,
            "prompt": base.PROMPT, "negative": base.NEGATIVE, "guidance": GUIDANCE, "seed": SEED,
            "steps": STEPS, "height": SIDE, "width": SIDE, "strength": case["strength"],
            "mask": masked, **base.OURS[case["scheduler"]],
            "latents": summary("latents", nhwc(x), first=16),
            "pixels": summary("pixels", nhwc(pixels), first=16)}


REFINER = dict(base.XL, context=40, vector=24 + 5 * 8, sizes=5)


def xl_pipeline(kind, unet_case, vae, **more):
    c = {**ldm_cases.DEFAULTS, **unet_case}
    unet = ldm_cases.unet(c)
    ldm_golden.fill(unet, ldm_cases.names_of(unet, c))
    unet.register_to_config(sample_size=SIDE // 8)
    scheduler, options = base.SCHEDULERS["euler"]
    pipeline = kind(vae=vae, text_encoder=None, text_encoder_2=None, tokenizer=None,
                    tokenizer_2=None, unet=unet, scheduler=scheduler(**base.BETAS, **options),
                    add_watermarker=False, **more)
    pipeline.set_progress_bar_config(disable=True)
    return c, pipeline


def refined(tokenizer, share=0.7):
    """Stable Diffusion XL whose last steps are the refiner's."""
    vae = base.autoencoder(base.AUTOENCODER)
    vae.register_to_config(scaling_factor=0.13025)
    texts = [base.text_model(t) for t in base.XL_TEXTS]
    c, first = xl_pipeline(diffusers.StableDiffusionXLPipeline, base.XL, vae)
    d, second = xl_pipeline(diffusers.StableDiffusionXLImg2ImgPipeline, REFINER, vae,
                            requires_aesthetics_score=True)
    (negative, n_pooled), (positive, pooled) = (base.encoded(tokenizer, texts, p, True)
                                                for p in (base.NEGATIVE, base.PROMPT))
    both = dict(num_inference_steps=STEPS, guidance_scale=GUIDANCE, pooled_prompt_embeds=pooled,
                negative_pooled_prompt_embeds=n_pooled, output_type="latent")
    x = first(prompt_embeds=positive, negative_prompt_embeds=negative, denoising_end=share,
              height=SIDE, width=SIDE, generator=torch.manual_seed(SEED), **both).images
    x = second(prompt_embeds=positive[..., 24:], negative_prompt_embeds=negative[..., 24:],
               image=x, denoising_start=share, original_size=(SIDE, SIDE),
               target_size=(SIDE, SIDE), **both).images
    pixels = vae.decode(x / 0.13025).sample.clamp(-1, 1)
    return {"case": "refined_euler", "unet": c, "refiner": d, "share": share,
            "texts": base.XL_TEXTS, "autoencoder": base.AUTOENCODER, "prompt": base.PROMPT,
            "negative": base.NEGATIVE, "guidance": GUIDANCE, "seed": SEED, "steps": STEPS,
            "height": SIDE, "width": SIDE, **base.OURS["euler"],
            "latents": summary("latents", nhwc(x), first=16),
            "pixels": summary("pixels", nhwc(pixels), first=16)}


EDIT = dict(extra_channels=4)
EDITS = {  # by a network that sees the latents of the image: InstructPix2Pix
    "edit_euler": dict(scheduler="euler", unet=dict(base.SD1, **EDIT), image_guidance=1.5),
    "edit_dpmpp_2m": dict(scheduler="dpmpp_2m", unet=dict(base.SD1, **EDIT), image_guidance=1.2),
    "edit_xl_euler": dict(scheduler="euler", unet=dict(base.XL, **EDIT), image_guidance=1.7),
}


def edited(name, case, tokenizer):
    c = {**ldm_cases.DEFAULTS, **case["unet"]}
    xl = c["vector"] > 0
    texts = base.XL_TEXTS if xl else [base.TEXT]
    vae = base.autoencoder(base.AUTOENCODER)
    models = [base.text_model(t) for t in texts]
    (negative, n_pooled), (positive, pooled) = (base.encoded(tokenizer, models, p, xl)
                                                for p in (base.NEGATIVE, base.PROMPT))
    image = picture().permute(2, 0, 1)[None].float() / 255
    call = dict(image=image, num_inference_steps=STEPS, guidance_scale=GUIDANCE,
                image_guidance_scale=case["image_guidance"], prompt_embeds=positive,
                negative_prompt_embeds=negative, output_type="latent",
                generator=torch.Generator().manual_seed(SEED))
    if xl:
        vae.register_to_config(scaling_factor=0.13025)
        _, pipeline = xl_pipeline(diffusers.StableDiffusionXLInstructPix2PixPipeline,
                                  case["unet"], vae)
        call.update(pooled_prompt_embeds=pooled, negative_pooled_prompt_embeds=n_pooled,
                    height=SIDE, width=SIDE)
    else:
        unet = ldm_cases.unet(c)
        ldm_golden.fill(unet, ldm_cases.names_of(unet, c))
        kind, options = base.SCHEDULERS[case["scheduler"]]
        pipeline = diffusers.StableDiffusionInstructPix2PixPipeline(
            vae=vae, text_encoder=None, tokenizer=None, unet=unet,
            scheduler=kind(**base.BETAS, **options), safety_checker=None, feature_extractor=None,
            requires_safety_checker=False)
        pipeline.set_progress_bar_config(disable=True)
    x = pipeline(**call).images
    pixels = vae.decode(x / (0.13025 if xl else 0.18215)).sample.clamp(-1, 1)
    return {"case": name, "unet": c, "texts": texts, "autoencoder": base.AUTOENCODER,
            "prompt": base.PROMPT, "negative": base.NEGATIVE, "guidance": GUIDANCE,
            "image_guidance": case["image_guidance"], "seed": SEED, "steps": STEPS,
            "height": SIDE, "width": SIDE, **base.OURS[case["scheduler"]],
            "latents": summary("latents", nhwc(x), first=16),
            "pixels": summary("pixels", nhwc(pixels), first=16)}


RESIZES = {
    "nearest": dict(mode="nearest"), "nearest_exact": dict(mode="nearest-exact"),
    "bilinear": dict(mode="bilinear"), "bicubic": dict(mode="bicubic"),
    "bilinear_antialias": dict(mode="bilinear", antialias=True),
    "bicubic_antialias": dict(mode="bicubic", antialias=True),
}


def resizes():
    """Latents [1,5,6,2] of values i^2 mod 17, in other sizes."""
    x = (torch.arange(60) ** 2 % 17).float().reshape(1, 5, 6, 2).permute(0, 3, 1, 2)
    return [{"filter": name, "height": h, "width": w,
             "values": [round(v, 5) for v in nhwc(torch.nn.functional.interpolate(
                 x, size=(h, w), **call)).flatten().tolist()]}
            for name, call in RESIZES.items() for h, w in ((10, 9), (7, 12), (3, 4))]


def main():
    base.record_runs(__doc__, lambda tokenizer: {"text_to_image_modes.json": {
        "runs": [run(name, case, tokenizer) for name, case in CASES.items()],
        "refined": [refined(tokenizer)],
        "edits": [edited(name, case, tokenizer) for name, case in EDITS.items()],
        "resizes": resizes()}})


if __name__ == "__main__":
    main()
