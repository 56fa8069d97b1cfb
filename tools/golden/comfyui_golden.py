"""Golden runs of ComfyUI: python comfyui_golden.py --comfyui PATH --out tests/golden.

ComfyUI's own nodes, text encoding, samplers and networks on a processor in float32, at small sizes
with hashed weights, from a checkout outside of the repository; its server is not started. Noise of
steps is drawn as later versions do on a processor: from a generator of the seed that follows.
"""

import argparse
import functools
import json
import logging
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
import program_networks as small  # noqa: E402
from generate import write  # noqa: E402
from record import nhwc, summary  # noqa: E402

PROMPT, NEGATIVE = "a red fox in deep snow, at dawn", "blurry"
LONG = ("a (red fox:1.3) in ((deep)) snow, at [dawn], " + "with trees and very old stones, " * 14
        + "and a (river (of glass:1.5):0.8)")
SAMPLERS = ("euler euler_cfg_pp euler_ancestral heun heunpp2 dpm_2 dpm_2_ancestral lms dpm_fast "
            "dpmpp_2s_ancestral dpmpp_sde dpmpp_2m dpmpp_2m_sde dpmpp_3m_sde ddpm lcm "
            "ipndm ipndm_v deis ddim uni_pc uni_pc_bh2").split()
SCHEDULES = "normal karras exponential sgm_uniform simple ddim_uniform beta".split()


def cases_of_other_files():
    """LoRAs, embeddings, control networks, and networks that were trained to inpaint."""
    fox = dict(strength=0.7, text_strength=0.5)
    named = dict(prompt="a (embedding:foxes:1.3) in deep snow, embedding:foxes",
                 negative="blurry embedding:foxes")
    out = {}
    for net, end in (("sd1", ""), ("xl", "_xl")):
        out |= {
            f"lora{end}": dict(network=net, lora=fox),
            f"embedding{end}": dict(network=net, **named),
            f"lora_embedding{end}": dict(network=net, lora=dict(fox, text_strength=0), **named),
            f"control{end}": dict(network=net, controls=[dict(seed=1, strength=0.8)]),
            f"control_part{end}": dict(network=net, controls=[
                dict(seed=2, strength=1.0, start=0.2, end=0.6)]),
            f"inpaint_mask{end}": dict(network=f"{net}_inpaint", init=True, strength=1.0,
                                       mask=True),
            f"inpaint_plain{end}": dict(network=f"{net}_inpaint"),
        }
    inpaint = dict(network="sd1_inpaint", init=True)
    return out | {
        "control_two": dict(sampler="dpmpp_2m", schedule="karras", controls=[
            dict(seed=1, strength=0.5, end=0.5), dict(seed=2, strength=0.7)]),
        "control_ancestral": dict(sampler="euler_ancestral", controls=[dict(seed=3, strength=0.7)]),
        "control_lora": dict(lora=fox, controls=[dict(seed=1, strength=0.8)]),
        "inpaint_mask_part": dict(inpaint, strength=0.6, mask=True, sampler="dpmpp_2m"),
        "inpaint_image": dict(inpaint, strength=0.6),
        "inpaint_odd": dict(inpaint, strength=0.8, mask=True, mask_shift=4),
        "mask_odd": dict(init=True, strength=0.8, mask=True, mask_shift=3),
    }


def cases():
    out = {f"sampler_{s}": dict(sampler=s, schedule="normal") for s in SAMPLERS}
    out |= {f"schedule_{s}": dict(sampler="euler", schedule=s) for s in SCHEDULES}
    out |= {f"schedule_{s}_dpmpp_2m": dict(sampler="dpmpp_2m", schedule=s) for s in SCHEDULES}
    out |= {
        "plain_xl": dict(network="xl"),
        "empty_negative_xl": dict(network="xl", negative=""),
        "emphasis": dict(prompt="a (red:1.3) fox in ((deep) snow:0.7), at \\(dawn\\)"),
        "emphasis_xl": dict(network="xl", prompt="a (red:1.3) fox in ((deep) snow:0.7)"),
        "emphasis_negative": dict(negative="(blurry:1.4), (low quality)"),
        "long": dict(prompt=LONG),
        "long_xl": dict(network="xl", prompt=LONG),
        "clip_skip": dict(clip_skip=2),
        "clip_skip_xl": dict(network="xl", clip_skip=3),
        "guidance_1": dict(guidance=1.0),
        "image": dict(init=True, strength=0.6),
        "image_ancestral": dict(init=True, strength=0.35, sampler="euler_ancestral"),
        "image_uni_pc": dict(init=True, strength=0.6, sampler="uni_pc"),
        "image_dpmpp_2m_sde": dict(init=True, strength=0.6, sampler="dpmpp_2m_sde"),
        "image_1": dict(init=True, strength=1.0),
        "mask": dict(init=True, strength=0.6, mask=True),
        "mask_1": dict(init=True, strength=1.0, mask=True),
        "mask_ddim": dict(init=True, strength=0.6, mask=True, sampler="ddim"),
        "mask_lcm": dict(init=True, strength=0.6, mask=True, sampler="lcm"),
        "mask_uni_pc": dict(init=True, strength=0.6, mask=True, sampler="uni_pc"),
    }
    out |= cases_of_other_files()
    usual = dict(network="sd1", sampler="euler", schedule="normal", steps=20, guidance=5.0,
                 seed=7, height=64, width=64, prompt=PROMPT, negative=NEGATIVE)
    return {name: {**usual, **case} for name, case in out.items()}


# ---- ComfyUI's objects of small networks -----------------------------------------------------


def unet_config(c):
    out = dict(image_size=c["image_size"], in_channels=c["in_channels"] + c["extra_channels"],
               out_channels=4, model_channels=c["model_channels"], dtype=torch.float32,
               num_res_blocks=[c["num_res_blocks"]] * len(c["channel_mult"]),
               channel_mult=c["channel_mult"], transformer_depth=c["input_depths"],
               transformer_depth_output=c["output_depths"][::-1],  # taken from the end
               transformer_depth_middle=c["middle_depth"], context_dim=c["context"],
               use_spatial_transformer=True, legacy=False,
               use_linear_in_transformer=not c["conv_projection"],
               adm_in_channels=c["vector"] or None)
    return out | (dict(num_classes="sequential") if c["vector"] else {})


def model_of(c, comfy):
    kind = (comfy.supported_models.SD15 if not c["vector"] else comfy.supported_models.SDXL
            if c["sizes"] == 6 else comfy.supported_models.SDXLRefiner)
    config = kind(unet_config(c))
    config.unet_config.update(num_heads=c["num_heads"] or -1,
                              num_head_channels=c["num_head_channels"] or -1)
    config.unet_config.pop("use_temporal_attention", None)
    model = config.get_model({})
    small.fill(model.diffusion_model)
    if c["vector"]:
        model.embedder = type(model.embedder)(c["size_channels"])
    cpu = torch.device("cpu")
    return comfy.model_patcher.ModelPatcher(model, load_device=cpu, offload_device=cpu)


def text_json(text, folder):
    path = Path(folder) / f"text_{text['width']}.json"
    path.write_text(json.dumps(dict(
        num_hidden_layers=text["layers"], hidden_size=text["width"],
        num_attention_heads=text["heads"], intermediate_size=text["hidden"],
        hidden_act=text["activation"], max_position_embeddings=text["positions"],
        eos_token_id=text["vocabulary"] - 1)))
    return str(path)


def filled_text(encoder, text):
    if text["projection"]:
        encoder.transformer.text_projection = torch.nn.Linear(text["width"], text["projection"],
                                                              bias=False)
    small.fill(encoder.transformer)
    return encoder


def clip_of(texts, comfy, folder):
    sd1 = comfy.sd1_clip
    config = [text_json(t, folder) for t in texts]
    call = dict(device="cpu", dtype=torch.float32)

    def one(**_):
        plain = functools.partial(sd1.SDClipModel, return_projected_pooled=False)
        model = sd1.SD1ClipModel(**call, textmodel_json_config=config[0], clip_model=plain)
        filled_text(model.clip_l, texts[0])
        return model

    def two(**_):
        model = comfy.sdxl_clip.SDXLClipModel.__new__(comfy.sdxl_clip.SDXLClipModel)
        torch.nn.Module.__init__(model)
        hidden = dict(layer="hidden", layer_idx=-2, layer_norm_hidden_state=False, **call)
        model.clip_l = filled_text(
            sd1.SDClipModel(textmodel_json_config=config[0], **hidden), texts[0])
        model.clip_g = filled_text(
            sd1.SDClipModel(textmodel_json_config=config[1], return_projected_pooled=True,
                            special_tokens={"start": 49406, "end": 49407, "pad": 0}, **hidden),
            texts[1])
        model.dtypes = {torch.float32}
        return model

    def tokenizer(embedding_directory=None, tokenizer_data={}):
        if len(texts) == 2:
            out = comfy.sdxl_clip.SDXLTokenizer(embedding_directory)
            out.clip_l.embedding_size, out.clip_g.embedding_size = (t["width"] for t in texts)
            return out
        out = sd1.SD1Tokenizer(embedding_directory=embedding_directory)
        out.clip_l.embedding_size = texts[0]["width"]
        return out
    target = comfy.supported_models_base.ClipTarget(tokenizer, two if len(texts) == 2 else one)
    return comfy.sd.CLIP(target, embedding_directory=folder, model_options={"dtype": torch.float32})


def control_of(c, comfy):
    config = {k: v for k, v in unet_config(dict(c, image_size=16, extra_channels=0,
                                                output_depths=[])).items()
              if k not in ("out_channels", "transformer_depth_output")}
    network = comfy.cldm.cldm.ControlNet(
        **config, hint_channels=3, num_heads=c["num_heads"] or -1,
        num_head_channels=c["num_head_channels"] or -1, operations=comfy.ops.disable_weight_init)
    return comfy.controlnet.ControlNet(small.fill(network), load_device=torch.device("cpu"))


def vae_of(c, comfy):
    config = dict(double_z=True, z_channels=c["latent_channels"], resolution=256, in_channels=3,
                  out_ch=3, ch=c["channels"], ch_mult=c["channel_mult"],
                  num_res_blocks=c["res_blocks"], attn_resolutions=[], dropout=0.0)
    vae = comfy.sd.VAE(sd={}, config={"params": {"ddconfig": config, "embed_dim": 4}},
                       dtype=torch.float32)
    small.fill(vae.first_stage_model)
    vae.first_stage_model.regularization.sample = False  # the mean, whose deviation no seed decides
    return vae


# ---- runs ------------------------------------------------------------------------------------


def latents_of(case, conditions, vae, nodes):
    """What a run begins with, and its conditions."""
    height, width = case["height"], case["width"]
    if not case.get("init"):
        return nodes.EmptyLatentImage().generate(width, height)[0], conditions
    pixels = small.picture(height, width)[None].float() / 255
    mask = small.mask(height, width, case.get("mask_shift", 0))[None].float() / 255
    if case.get("mask") and "inpaint" in case["network"]:
        *conditions, latent = nodes.InpaintModelConditioning().encode(*conditions, pixels, vae,
                                                                      mask)
        return latent, conditions
    latent, = nodes.VAEEncode().encode(vae, pixels)
    if case.get("mask"):
        latent, = nodes.SetLatentNoiseMask().set_mask(latent, mask)
    return latent, conditions


def run(name, case, comfy, nodes, folder):
    net = small.NETWORKS[case["network"]]
    model, clip = model_of(net["unet"], comfy), clip_of(net["texts"], comfy, folder)
    vae = vae_of(net["autoencoder"], comfy)
    if "lora" in case:
        model, clip = comfy.sd.load_lora_for_models(
            model, clip, small.tensors_of(net["lora_tensors"]), case["lora"]["strength"],
            case["lora"]["text_strength"])
    if "embedding:" in case["prompt"]:
        save_file(small.tensors_of(net["embedding_tensors"]),
                  Path(folder) / f"{small.EMBEDDING}.safetensors")
    if "clip_skip" in case:
        clip, = nodes.CLIPSetLastLayer().set_last_layer(clip, -case["clip_skip"])
    conditions = [nodes.CLIPTextEncode().encode(clip, case[p])[0] for p in ("prompt", "negative")]
    for c in case.get("controls", []):
        image = small.pattern(case["height"], case["width"], c["seed"])[None].float() / 255
        conditions = nodes.ControlNetApplyAdvanced().apply_controlnet(
            *conditions, control_of(net["control_net"], comfy), image, c["strength"],
            c.get("start", 0.0), c.get("end", 1.0))
    latent, conditions = latents_of(case, conditions, vae, nodes)
    noise = torch.Generator().manual_seed(case["seed"] + 1)
    comfy.k_diffusion.sampling.default_noise_sampler = lambda like: (
        lambda *_: torch.randn(like.shape, generator=noise))
    latent, = nodes.KSampler().sample(model, case["seed"], case["steps"], case["guidance"],
                                      case["sampler"], case["schedule"], *conditions, latent,
                                      denoise=case.get("strength", 1.0))
    x = latent["samples"]
    pixels = nodes.VAEDecode().decode(vae, {"samples": x})[0] * 2 - 1  # NHWC
    return {"case": name, "dialect": "comfy", "noise": "auto",
            "noise_options": "steps=torch_cpu", **case,
            "latents": summary("latents", nhwc(model.model.process_latent_in(x)), first=16),
            "pixels": summary("pixels", pixels, first=16)}


def load(path):
    """ComfyUI's modules, told to compute on a processor."""
    sys.path.insert(0, path)
    sys.argv = sys.argv[:1]
    from comfy.cli_args import args
    args.cpu, args.force_fp32, args.fp32_vae, args.fp32_text_enc = True, True, True, True
    import comfy.supported_models_base  # noqa: F401
    import comfy.cldm.cldm  # noqa: F401
    import comfy.controlnet  # noqa: F401
    import comfy.sdxl_clip  # noqa: F401
    import comfy
    import nodes
    comfy.utils.set_progress_bar_enabled(False)
    logging.disable(logging.WARNING)
    return comfy, nodes


def version_of(checkout):
    return subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True,
                          text=True, check=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comfyui", required=True, help="a checkout of ComfyUI")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--version", default="", help="of the checkout, where it is no git clone")
    parser.add_argument("--only", default="",
                        help="cases whose names have this, a regular expression; writes nothing")
    args = parser.parse_args()
    version = args.version or version_of(args.comfyui)
    torch.set_num_threads(1)
    comfy, nodes = load(args.comfyui)
    runs = []
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for name, case in cases().items():
            if re.search(args.only, name):
                runs.append(run(name, case, comfy, nodes, folder))
                print(name, runs[-1]["latents"]["l2"], flush=True)
    if args.only:
        return
    write(args.out / "comfyui_runs.json", {
        "generator": {"python": platform.python_version(), "torch": torch.__version__,
                      "comfyui": version, "rule": "tools/golden/hashed_weights.py"},
        "networks": small.NETWORKS, "runs": runs})


if __name__ == "__main__":
    main()
