#!/usr/bin/env python3
"""Pictures of ebb beside those of A1111 and ComfyUI, from one checkpoint, on a processor in f32.

    tools/compare_programs.py --model sd15.safetensors --webui PATH --tokenizer FOLDER
    tools/compare_programs.py --model sd15.safetensors --comfyui PATH

Prints for each sampler how far the pixels are from each other, of 0 to 255. The model is a file of
Stable Diffusion 1.x; random weights will do. Checkouts, packages and tokenizer are those of
tools/golden/README.md, and Python is run with them; --ebb is the program. Both programs load the
file by their own code and are run without their servers, one after the other.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
import numpy as np  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent / "golden"))

PROMPT, NEGATIVE = "a (red:1.2) fox in deep snow, at dawn", "blurry, (low quality:1.3)"
SEED, GUIDANCE = 7, 5.0
# As the programs name them: sampler, schedule, and what ebb is told of noise that a GPU would draw.
WEBUI = [("Euler", "Automatic", ""), ("Euler a", "Automatic", ""), ("DPM++ 2M", "Karras", ""),
         ("DPM++ 2M SDE", "Karras", "generator=torch_cpu"), ("DDIM", "Automatic", "")]
COMFYUI = [("euler", "normal", ""), ("euler_ancestral", "normal", "steps=torch_cpu"),
           ("dpmpp_2m", "karras", ""), ("dpmpp_2m_sde", "karras", "steps=torch_cpu"),
           ("ddim", "ddim_uniform", "")]
# Stable Diffusion 1 in the fields of program_networks.py
UNET = dict(in_channels=4, extra_channels=0, model_channels=320, channel_mult=[1, 2, 4, 4],
            num_res_blocks=2, input_depths=[1, 1, 1, 1, 1, 1, 0, 0], num_heads=8, context=768,
            vector=0)
TEXT = dict(width=768, layers=12, heads=12, hidden=3072, vocabulary=49408, positions=77,
            projection=0, activation="quick_gelu")
AUTOENCODER = dict(latent_channels=4, channels=128, channel_mult=[1, 2, 4, 4], res_blocks=2)


def webui_pictures(args, folder):
    import webui_golden as webui
    data = Path(folder) / "webui"
    data.mkdir()
    webui.load(args.webui, str(data))
    from modules import processing, sd_models, shared
    shared.opts.data.update(CLIP_stop_at_last_layers=1, samples_save=False, grid_save=False,
                            live_previews_enable=False)
    model = data / "model.safetensors"
    model.symlink_to(args.model)
    net = dict(unet=UNET, texts=[TEXT], autoencoder=AUTOENCODER)
    config = webui.sd1_config(net, str(data), args.tokenizer)
    model.with_suffix(".yaml").write_text(json.dumps(dict(model=config)))
    info = sd_models.CheckpointInfo(str(model))
    info.register()
    sd_models.load_model(info)
    for sampler, schedule, noise in WEBUI:
        shared.opts.data.update(randn_source="CPU" if noise else "NV")
        p = processing.StableDiffusionProcessingTxt2Img(
            sd_model=sd_models.model_data.sd_model, prompt=PROMPT, negative_prompt=NEGATIVE,
            seed=SEED, steps=args.steps, cfg_scale=GUIDANCE, width=args.size, height=args.size,
            sampler_name=sampler, scheduler=schedule, do_not_save_samples=True,
            do_not_save_grid=True)
        yield np.array(processing.process_images(p).images[0])


def comfyui_pictures(args, folder):
    import comfyui_golden
    comfy, nodes = comfyui_golden.load(args.comfyui)
    model, clip, vae = comfy.sd.load_checkpoint_guess_config(str(args.model))[:3]
    positive, negative = (nodes.CLIPTextEncode().encode(clip, text)[0]
                          for text in (PROMPT, NEGATIVE))
    for sampler, schedule, _ in COMFYUI:
        empty, = nodes.EmptyLatentImage().generate(args.size, args.size)
        # as later versions draw on a processor
        noise = torch.Generator().manual_seed(SEED + 1)
        comfy.k_diffusion.sampling.default_noise_sampler = lambda like: (
            lambda *_: torch.randn(like.shape, generator=noise))
        latent, = nodes.KSampler().sample(model, SEED, args.steps, GUIDANCE, sampler, schedule,
                                          positive, negative, empty)
        image = nodes.VAEDecode().decode(vae, latent)[0][0]
        yield np.clip(255.0 * image.numpy(), 0, 255).astype(np.uint8)  # as its node for files does


def ebb_picture(args, dialect, case, folder):
    sampler, schedule, noise = case
    out = Path(folder) / "ebb.png"
    command = [args.ebb, "generate", "--model", args.model, "--prompt", PROMPT, "--negative",
               NEGATIVE, "--size", str(args.size), "--steps", str(args.steps), "--seed", str(SEED),
               "--guidance", str(GUIDANCE), "--sampler", sampler, "--schedule",
               "auto" if schedule == "Automatic" else schedule, "--dialect", dialect, "--dtype",
               "f32", "--device", "cpu", "--out", str(out)]
    command += ["--noise-options", noise] if noise else []
    subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)
    return np.array(Image.open(out).convert("RGB"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)

    def absolute(path):  # programs change the folder
        return Path(path).resolve()
    parser.add_argument("--model", type=absolute, required=True)
    parser.add_argument("--ebb", type=absolute, default="build/ebb")
    program = parser.add_mutually_exclusive_group(required=True)
    program.add_argument("--webui", type=absolute, help="a checkout of the web UI")
    program.add_argument("--comfyui", help="a checkout of ComfyUI")
    parser.add_argument("--tokenizer", type=absolute, help="a folder with CLIP's, for the web UI")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", type=absolute, help="a folder for the pictures")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dialect, cases, pictures = ("a1111", WEBUI, webui_pictures) if args.webui else (
        "comfy", COMFYUI, comfyui_pictures)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        begun, theirs = time.time(), []
        for picture in pictures(args, folder):
            theirs.append(picture)
            print(f"{dialect} {cases[len(theirs) - 1][0]}: {time.time() - begun:.0f} s", flush=True)
        print(f"{dialect}, {args.size}x{args.size}, {args.steps} steps\n"
              "| sampler | largest difference | mean | values that differ |\n|---|---|---|---|")
        for case, other in zip(cases, theirs):
            own = ebb_picture(args, dialect, case, folder)
            far = np.abs(own.astype(int) - other.astype(int))
            print(f"| {case[0]}, {case[1]} | {far.max()} | {far.mean():.5f} | "
                  f"{100 * (far > 0).mean():.3f} % |", flush=True)
            if args.keep:
                args.keep.mkdir(exist_ok=True)
                for name, picture in (("ebb", own), (dialect, other)):
                    Image.fromarray(picture).save(args.keep / f"{case[0]}_{name}.png")


if __name__ == "__main__":
    main()
