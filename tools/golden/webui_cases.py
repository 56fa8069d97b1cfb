"""The runs of webui_golden.py."""

import re

PROMPT, NEGATIVE = "a red fox in deep snow, at dawn", "blurry"
LONG = ("a (red fox:1.3) in ((deep)) snow, at [dawn], " + "with trees and very old stones, " * 14
        + "and a (river (of glass:1.5):0.8)")
SAMPLERS = ["DPM++ 2M", "DPM++ SDE", "DPM++ 2M SDE", "DPM++ 2M SDE Heun", "DPM++ 2S a",
            "DPM++ 3M SDE", "Euler a", "Euler", "LMS", "Heun", "DPM2", "DPM2 a", "DPM fast",
            "Restart", "DDIM", "DDIM CFG++", "PLMS", "UniPC", "LCM"]
# runs of which the counts are kept that extensions get: for each evaluation its step, and all steps
COUNTED = ["sampler_euler", "sampler_heun", "sampler_dpm2", "sampler_dpmpp_sde",
           "sampler_dpmpp_2s_a", "sampler_ddim", "sampler_plms", "sampler_unipc", "image",
           "image_ddim", "image_plms", "image_unipc", "editing_heun"]
SCHEDULES = ["Uniform", "Karras", "Exponential", "Polyexponential", "SGM Uniform", "KL Optimal",
             "Align Your Steps", "Simple", "Normal", "DDIM", "Beta"]


def word(name):
    return re.sub(r"\W+", "_", name.lower().replace("++", "pp")).strip("_")


def cases_of_other_starts():
    """Samplers that begin at levels of their own, and other noise of a seed."""
    out, of_both = {}, dict(subseed=5, subseed_strength=0.3)
    for s in ("DDIM", "DDIM CFG++", "PLMS", "UniPC", "LCM"):
        out[f"image_{word(s)}"] = dict(init=True, strength=0.6, sampler=s)
        out[f"mask_{word(s)}"] = dict(init=True, strength=0.6, mask=True, sampler=s)
    return out | {
        "lcm_karras": dict(sampler="LCM", schedule="Karras", steps=6),
        "lcm_sgm_uniform": dict(sampler="LCM", schedule="SGM Uniform", steps=5),
        "variation": dict(variation=dict(subseed=5, subseed_strength=0.3)),
        "variation_image": dict(variation=dict(subseed=5, subseed_strength=0.7), init=True,
                                strength=0.6, sampler="Euler a"),
        "seed_resize": dict(variation=dict(resize_height=4, resize_width=6)),
        "ensd": dict(variation=dict(ensd=31337), sampler="Euler a"),
        "ensd_hires": dict(variation=dict(ensd=31337, subseed=5, subseed_strength=0.3),
                           sampler="Euler a", hires=dict(
                               scale=1.5, upscaler="Latent", steps=0, strength=0.6)),
        "variation_sde": dict(variation=of_both, sampler="DPM++ SDE", count=2),
        "variation_2m_sde": dict(variation=of_both, sampler="DPM++ 2M SDE", count=2),
        "variation_3m_sde": dict(variation=of_both, sampler="DPM++ 3M SDE", count=2,
                                 init=True, strength=0.6),
        "variation_count": dict(variation=of_both, sampler="Euler a", count=2),
        "count_2m_sde": dict(sampler="DPM++ 2M SDE", count=2),
        "ensd_2m_sde": dict(variation=dict(ensd=31337), sampler="DPM++ 2M SDE"),
        "variation_mask_noise": dict(variation=of_both, init=True, strength=0.9, mask=True,
                                     content="noise"),
        "mask_noise_ddim": dict(init=True, strength=0.9, mask=True, content="noise",
                                sampler="DDIM"),
        "mask_nothing_ddim": dict(init=True, strength=0.9, mask=True, content="nothing",
                                  sampler="DDIM"),
        "ddim_9": dict(sampler="DDIM", steps=9),
        "ddim_27": dict(sampler="DDIM", steps=27),
        "unipc_9": dict(sampler="UniPC", steps=9),
        "hires_ddim": dict(sampler="DDIM", hires=dict(
            scale=1.5, upscaler="Latent", steps=0, strength=0.6)),
    }


def cases_of_other_files():
    """LoRAs, embeddings, and networks that were trained to inpaint."""
    tag = "<lora:fox:0.5:0.7>"  # the text's strength comes first
    named = dict(prompt="a (foxes:1.3) in deep snow, foxes", negative="blurry foxes")
    out = {}
    for net, end in (("sd1", ""), ("xl", "_xl")):
        out |= {
            f"lora{end}": dict(network=net, prompt=PROMPT + tag, lora={}),
            f"embedding{end}": dict(network=net, **named),
            f"lora_embedding{end}": dict(network=net, lora={}, negative=named["negative"],
                                         prompt=named["prompt"] + "<lora:fox:0:0.7>"),
            f"inpaint_mask{end}": dict(network=f"{net}_inpaint", init=True, strength=1.0,
                                       mask=True),
            f"inpaint_plain{end}": dict(network=f"{net}_inpaint"),
        }
    inpaint = dict(network="sd1_inpaint", init=True)
    return out | {
        "lora_named": dict(prompt=PROMPT + "<lora:fox:te=0.5:unet=-0.7>", lora={}),
        "embedding_edited": dict(prompt="a [foxes:fox:0.5] in ((foxes)) snow"),
        "inpaint_mask_part": dict(inpaint, strength=0.6, mask=True, sampler="DPM++ 2M"),
        "inpaint_mask_ddim": dict(inpaint, strength=0.6, mask=True, sampler="DDIM"),
        "inpaint_fill": dict(inpaint, strength=0.8, mask=True, content="fill"),
        "inpaint_noise": dict(inpaint, strength=0.9, mask=True, content="noise"),
        "inpaint_image": dict(inpaint, strength=0.6),
        "inpaint_odd": dict(inpaint, strength=0.8, mask=True, mask_shift=4),
        "mask_odd": dict(init=True, strength=0.8, mask=True, mask_shift=3),
        "mask_fill": dict(init=True, strength=0.8, mask=True, content="fill"),
    }


def cases():
    out = {f"sampler_{word(s)}": dict(sampler=s, steps=20 if s == "Restart" else 12)
           for s in SAMPLERS}
    out |= {f"schedule_{word(s)}": dict(sampler="Euler", schedule=s) for s in SCHEDULES}
    out |= {f"schedule_{word(s)}_dpmpp_2m": dict(sampler="DPM++ 2M", schedule=s)
            for s in SCHEDULES}
    out |= {
        "plain_xl": dict(network="xl"),
        "empty_negative_xl": dict(network="xl", negative=""),
        "emphasis": dict(prompt="a (red:1.3) fox in ((deep) snow:0.7), at \\(dawn\\)"),
        "emphasis_xl": dict(network="xl", prompt="a (red:1.3) fox in ((deep) snow:0.7)"),
        "emphasis_negative": dict(negative="(blurry:1.4), [low quality]"),
        "long": dict(prompt=LONG),
        "long_xl": dict(network="xl", prompt=LONG),
        "break": dict(prompt="a red fox BREAK in (deep:1.2) snow"),
        "editing": dict(prompt="a [red:blue:0.4] fox in [deep::12] snow"),
        "editing_emphasis": dict(prompt="a [red:(blue:1.5):0.4] fox in deep snow"),
        "editing_long": dict(prompt="[fox:" + "a red fox in very deep snow, " * 12 + ":0.5]"),
        "alternation": dict(prompt="a [red|blue|very old] fox"),
        "several": dict(prompt="a red fox AND deep (snow:1.2) :0.7 AND dawn :-0.3"),
        "several_long": dict(prompt="a fox :1.1 AND " + "trees and very old stones, " * 14),
        "editing_heun": dict(sampler="Heun", prompt="a [red:blue:0.4] fox"),
        "editing_fast": dict(sampler="DPM fast", prompt="[fox:tree house:0.4]"),
        "editing_plms": dict(sampler="PLMS", prompt="[fox:tree house:0.4]"),
        "editing_mask_heun": dict(sampler="Heun", prompt="[fox:tree house:0.4]", init=True,
                                  strength=0.6, mask=True),
        "clip_skip": dict(clip_skip=2),
        "guidance_1": dict(guidance=1.0),
        "image": dict(init=True, strength=0.6),
        "image_ancestral": dict(init=True, strength=0.35, sampler="Euler a"),
        "image_2m_karras": dict(init=True, strength=0.6, sampler="DPM++ 2M", schedule="Karras"),
        "image_2m_sde": dict(init=True, strength=0.6, sampler="DPM++ 2M SDE"),
        "image_1": dict(init=True, strength=1.0),
        "image_editing": dict(init=True, strength=0.6, prompt="a [red:blue:0.4] fox"),
        "mask": dict(init=True, strength=0.6, mask=True),
        "mask_noise": dict(init=True, strength=0.9, mask=True, content="noise"),
        "mask_nothing": dict(init=True, strength=1.0, mask=True, content="nothing"),
        "mask_ancestral": dict(init=True, strength=0.6, mask=True, sampler="Euler a"),
        "hires": dict(hires=dict(scale=1.5, upscaler="Latent", steps=0, strength=0.6)),
        "hires_steps": dict(sampler="Euler a", hires=dict(
            scale=2.0, upscaler="Latent (nearest-exact)", steps=10, strength=0.5)),
        "hires_2m_sde": dict(sampler="DPM++ 2M SDE", hires=dict(
            scale=1.5, upscaler="Latent (bicubic antialiased)", steps=0, strength=0.7)),
        "hires_editing": dict(prompt="a [red:blue:0.4] fox", hires=dict(
            scale=1.5, upscaler="Latent", steps=0, strength=0.6)),
        "refiner": dict(refiner=dict(network="sd1_heads", share=0.6)),
        "refiner_2m": dict(sampler="DPM++ 2M", refiner=dict(network="sd1_heads", share=0.6)),
        "refiner_2m_sde": dict(sampler="DPM++ 2M SDE",
                               refiner=dict(network="sd1_heads", share=0.6)),
        "refiner_lms": dict(sampler="LMS", refiner=dict(network="sd1_heads", share=0.6)),
        "refiner_unipc": dict(sampler="UniPC", refiner=dict(network="sd1_heads", share=0.6)),
        "refiner_plms": dict(sampler="PLMS", refiner=dict(network="sd1_heads", share=0.6)),
        "refiner_ancestral": dict(sampler="Euler a",
                                  refiner=dict(network="sd1_heads", share=0.6)),
    }
    out |= cases_of_other_starts()
    out |= cases_of_other_files()
    usual = dict(network="sd1", sampler="Euler", schedule="auto", steps=12, guidance=5.0, seed=7,
                 height=64, width=64, prompt=PROMPT, negative=NEGATIVE)
    return {name: {**usual, **case} for name, case in out.items()}
