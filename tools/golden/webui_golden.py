"""Golden runs of Stable Diffusion web UI (A1111): python webui_golden.py --webui PATH --out DIR.

Its own processing, text encoding, samplers and networks on a processor in float32, at small sizes
with hashed weights, from a checkout outside of the repository with the checkouts that it wants in
repositories/; its server is not started. Noise is that of a GPU, by its option for that, where it
can be.
"""

import argparse
import json
import os
import platform
import re
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
import program_networks as small  # noqa: E402
from hashed_weights import hashed_parameter  # noqa: E402
from webui_cases import COUNTED, cases  # noqa: E402

# ---- checkpoints of small networks -----------------------------------------------------------


def clip_folder(text, folder, tokenizer):
    """What transformers reads for a text encoder of this size."""
    path = Path(folder) / f"clip_{text['width']}"
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(dict(
        model_type="clip_text_model", vocab_size=text["vocabulary"], hidden_size=text["width"],
        intermediate_size=text["hidden"], num_hidden_layers=text["layers"],
        num_attention_heads=text["heads"], max_position_embeddings=text["positions"],
        hidden_act=text["activation"], projection_dim=text["projection"] or text["width"],
        bos_token_id=49406, eos_token_id=49407)))
    for file in ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"):
        (path / file).write_bytes((Path(tokenizer) / file).read_bytes())
    return str(path)


def first_stage(c, target):
    return dict(target=target, params=dict(
        embed_dim=4, monitor="val/rec_loss", lossconfig=dict(target="torch.nn.Identity"),
        ddconfig=dict(double_z=True, z_channels=c["latent_channels"], resolution=256,
                      in_channels=3, out_ch=3, ch=c["channels"], ch_mult=c["channel_mult"],
                      num_res_blocks=c["res_blocks"], attn_resolutions=[], dropout=0.0)))


def unet_params(c):
    depth = [c["input_depths"][i * c["num_res_blocks"]] for i in range(len(c["channel_mult"]))]
    out = dict(in_channels=c["in_channels"] + c["extra_channels"], out_channels=4,
               model_channels=c["model_channels"], channel_mult=c["channel_mult"],
               attention_resolutions=[2 ** i for i, d in enumerate(depth) if d],
               num_res_blocks=c["num_res_blocks"], use_spatial_transformer=True,
               context_dim=c["context"], use_checkpoint=False, legacy=False)
    if c["num_heads"]:
        out.update(num_heads=c["num_heads"], image_size=32)
    else:
        out.update(num_head_channels=c["num_head_channels"], use_linear_in_transformer=True)
    if c["vector"]:
        out.update(transformer_depth=[d or 1 for d in depth], num_classes="sequential",
                   adm_in_channels=c["vector"])
    return out


def sd1_config(net, folder, tokenizer):
    # trained to inpaint: the mask and latents of a picture are channels beside the noise
    beside = bool(net["unet"]["extra_channels"])
    kind = "LatentInpaintDiffusion" if beside else "LatentDiffusion"
    return dict(target=f"ldm.models.diffusion.ddpm.{kind}", params=dict(
        linear_start=0.00085, linear_end=0.0120, num_timesteps_cond=1, timesteps=1000,
        first_stage_key="jpg", cond_stage_key="txt", image_size=64, channels=4,
        cond_stage_trainable=False, conditioning_key="hybrid" if beside else "crossattn",
        monitor="val/loss_simple_ema", scale_factor=0.18215, use_ema=False,
        **(dict(finetune_keys=None) if beside else {}),
        unet_config=dict(target="ldm.modules.diffusionmodules.openaimodel.UNetModel",
                         params=unet_params(net["unet"])),
        first_stage_config=first_stage(net["autoencoder"],
                                       "ldm.models.autoencoder.AutoencoderKL"),
        cond_stage_config=dict(
            target="ldm.modules.encoders.modules.FrozenCLIPEmbedder",
            params=dict(version=clip_folder(net["texts"][0], folder, tokenizer)))))


def xl_config(net, folder, tokenizer):
    sgm = "sgm.modules.diffusionmodules"

    def sizes(key):
        return dict(is_trainable=False, input_key=key,
                    target="sgm.modules.encoders.modules.ConcatTimestepEmbedderND",
                    params=dict(outdim=net["unet"]["size_channels"]))
    small_g, big = net["texts"][-1], len(net["texts"]) > 1
    import open_clip
    open_clip.factory._MODEL_CONFIGS["small-g"] = dict(
        embed_dim=small_g["projection"], text_cfg=dict(
            context_length=77, vocab_size=small_g["vocabulary"], width=small_g["width"],
            heads=small_g["heads"], layers=small_g["layers"]),
        vision_cfg=dict(image_size=32, layers=1, width=64, head_width=32, patch_size=16))
    embedders = [dict(is_trainable=False, input_key="txt",
                      target="sgm.modules.encoders.modules.FrozenOpenCLIPEmbedder2",
                      params=dict(arch="small-g", version=None, freeze=True, layer="penultimate",
                                  always_return_pooled=True, legacy=False))]
    if big:
        embedders.insert(0, dict(
            is_trainable=False, input_key="txt",
            target="sgm.modules.encoders.modules.FrozenCLIPEmbedder",
            params=dict(layer="hidden", layer_idx=net["texts"][0]["layers"] - 1,
                        version=clip_folder(net["texts"][0], folder, tokenizer))))
    embedders += [sizes("original_size_as_tuple"), sizes("crop_coords_top_left"),
                  sizes("target_size_as_tuple" if big else "aesthetic_score")]
    return dict(target="sgm.models.diffusion.DiffusionEngine", params=dict(
        scale_factor=0.13025, disable_first_stage_autocast=True,
        denoiser_config=dict(target=f"{sgm}.denoiser.DiscreteDenoiser", params=dict(
            num_idx=1000,
            weighting_config=dict(target=f"{sgm}.denoiser_weighting.EpsWeighting"),
            scaling_config=dict(target=f"{sgm}.denoiser_scaling.EpsScaling"),
            discretization_config=dict(target=f"{sgm}.discretizer.LegacyDDPMDiscretization"))),
        network_config=dict(target=f"{sgm}.openaimodel.UNetModel",
                            params=unet_params(net["unet"])),
        conditioner_config=dict(target="sgm.modules.GeneralConditioner",
                                params=dict(emb_models=embedders)),
        first_stage_config=first_stage(net["autoencoder"],
                                       "sgm.models.autoencoder.AutoencoderKLInferenceWrapper")))


def open_clip_weight(name, shape):
    """A weight of open_clip's text model by transformers' names; None: it has no part."""
    def hashed(new, of=shape):
        return torch.from_numpy(hashed_parameter(new, of))
    plain = {"token_embedding.weight": "text_model.embeddings.token_embedding.weight",
             "positional_embedding": "text_model.embeddings.position_embedding.weight",
             "ln_final.weight": "text_model.final_layer_norm.weight",
             "ln_final.bias": "text_model.final_layer_norm.bias"}
    if name in plain:
        return hashed(plain[name])
    if name == "text_projection":
        return hashed("text_projection.weight", shape[::-1]).T.contiguous()
    block = re.match(r"transformer\.resblocks\.(\d+)\.(.*)", name)
    if not block:
        return None
    at, rest = f"text_model.encoder.layers.{block[1]}.", block[2]
    if rest.startswith("attn.in_proj_"):
        kind = rest.removeprefix("attn.in_proj_")
        return torch.cat([hashed(f"{at}self_attn.{p}_proj.{kind}", [shape[0] // 3, *shape[1:]])
                          for p in "qkv"])
    for old, new in [("attn.out_proj", "self_attn.out_proj"), ("mlp.c_fc", "mlp.fc1"),
                     ("mlp.c_proj", "mlp.fc2"), ("ln_1", "layer_norm1"), ("ln_2", "layer_norm2")]:
        rest = rest.replace(old, new)
    return hashed(at + rest)


PREFIXES = ["model.diffusion_model.", "first_stage_model.", "cond_stage_model.transformer.",
            "conditioner.embedders.0.transformer."]


def write_checkpoint(name, folder, tokenizer):
    from ldm.util import instantiate_from_config
    net = small.NETWORKS[name]
    config = (xl_config if net["unet"]["vector"] else sd1_config)(net, folder, tokenizer)
    (Path(folder) / f"{name}.yaml").write_text(json.dumps(dict(model=config)))
    tensors = {}
    from modules import sd_disable_initialization
    with sd_disable_initialization.DisableInitialization():
        model = instantiate_from_config(config)
    for key, value in model.state_dict().items():
        prefix = next((p for p in PREFIXES if key.startswith(p)), None)
        if prefix:
            tensors[key] = value if key.endswith("position_ids") else torch.from_numpy(
                hashed_parameter(key.removeprefix(prefix), value.shape))
        elif ".model." in key:
            made = open_clip_weight(key.split(".model.", 1)[1], list(value.shape))
            if made is not None:
                tensors[key] = made
    path = Path(folder) / f"{name}.safetensors"
    save_file(tensors, path)
    return path


# ---- runs ------------------------------------------------------------------------------------


class Runs:
    def __init__(self, folder, tokenizer):
        import ldm.modules.distributions.distributions
        import sgm.modules.distributions.distributions
        from modules import processing, sd_models, shared
        self.processing, self.sd_models, self.shared = processing, sd_models, shared
        shared.opts.data.update(randn_source="NV", CLIP_stop_at_last_layers=1,
                                sd_checkpoint_cache=0, samples_save=False, grid_save=False,
                                live_previews_enable=False)
        self.paths = {n: write_checkpoint(n, folder, tokenizer) for n in small.NETWORKS}
        self.infos = {}
        for name, path in self.paths.items():
            info = sd_models.CheckpointInfo(str(path))
            info.register()
            self.infos[name] = info
        # the mean, whose deviation no seed decides
        for posterior in (ldm.modules.distributions.distributions,
                          sgm.modules.distributions.distributions):
            gaussian = posterior.DiagonalGaussianDistribution
            gaussian.sample = gaussian.mode
        self.write_embeddings(Path(folder) / "embeddings")
        self.decoded = []
        decode = processing.decode_latent_batch

        def recorded(model, batch, *args, **kwargs):
            out = decode(model, batch, *args, **kwargs)
            self.decoded.append((batch.clone(), torch.stack([x.float() for x in out])))
            return out
        processing.decode_latent_batch = recorded
        self.counts = []
        from modules import script_callbacks
        script_callbacks.on_cfg_denoiser(
            lambda p: self.counts.append([p.sampling_step, p.total_sampling_steps]))

    @staticmethod
    def write_embeddings(folder):
        for name, net in small.NETWORKS.items():
            if "embedding_tensors" in net:
                (folder / name).mkdir(parents=True)
                save_file(small.tensors_of(net["embedding_tensors"]),
                          folder / name / f"{small.EMBEDDING}.safetensors")

    def write_lora(self, net):
        """The only one that the program finds."""
        import networks
        folder = Path(self.shared.cmd_opts.lora_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(small.tensors_of(net["lora_tensors"]), folder / f"{small.LORA}.safetensors")
        networks.list_available_networks()

    def load(self, name):
        current = self.sd_models.model_data.sd_model
        if current is None or current.sd_checkpoint_info.title != self.infos[name].title:
            self.sd_models.load_model(self.infos[name])
        return self.sd_models.model_data.sd_model

    def processed(self, case):
        schedule = "Automatic" if case["schedule"] == "auto" else case["schedule"]
        call = dict(sd_model=self.load(case["network"]), prompt=case["prompt"],
                    negative_prompt=case["negative"], seed=case["seed"], steps=case["steps"],
                    cfg_scale=case["guidance"], n_iter=case.get("count", 1),
                    width=case["width"], height=case["height"], sampler_name=case["sampler"],
                    scheduler=schedule, do_not_save_samples=True, do_not_save_grid=True)
        self.shared.opts.data.update(CLIP_stop_at_last_layers=case.get("clip_skip", 1),
                                     randn_source="CPU" if "SDE" in case["sampler"] else "NV")
        v = case.get("variation", {})
        self.shared.opts.data.update(eta_noise_seed_delta=v.get("ensd", 0))
        call.update(subseed=v.get("subseed", -1), subseed_strength=v.get("subseed_strength", 0),
                    seed_resize_from_h=v.get("resize_height", 0) * 8,
                    seed_resize_from_w=v.get("resize_width", 0) * 8)
        if "refiner" in case:
            call.update(refiner_checkpoint=self.infos[case["refiner"]["network"]].title,
                        refiner_switch_at=case["refiner"]["share"])
        if "hires" in case:
            h = case["hires"]
            call.update(enable_hr=True, hr_scale=h["scale"], hr_upscaler=h["upscaler"],
                        hr_second_pass_steps=h["steps"], denoising_strength=h["strength"])
        if "init" not in case:
            return self.processing.StableDiffusionProcessingTxt2Img(**call)
        image = Image.fromarray(small.picture(case["height"], case["width"]).numpy())
        call.update(init_images=[image], denoising_strength=case["strength"])
        if "mask" in case:
            contents = ["fill", "original", "noise", "nothing"]
            content = contents.index(case.get("content", "original"))
            mask = small.mask(case["height"], case["width"], case.get("mask_shift", 0))
            call.update(mask=Image.fromarray(mask.numpy()), mask_blur_x=0, mask_blur_y=0,
                        inpainting_fill=content, inpaint_full_res=False)
        return self.processing.StableDiffusionProcessingImg2Img(**call)

    def run(self, name, case):
        from record import nhwc, summary
        self.decoded.clear()
        self.counts.clear()
        if "lora" in case:
            self.write_lora(small.NETWORKS[case["network"]])
        p = self.processed(case)
        self.processing.process_images(p)
        x, pixels = self.decoded[-1]
        if "refiner" in case:
            self.sd_models.model_data.loaded_sd_models.clear()
            self.sd_models.model_data.sd_model = None
        # Brownian paths are drawn where it samples, here on the CPU
        noise = ["generator=torch_cpu"] if "SDE" in case["sampler"] else []
        noise += [f"{k}={v}" for k, v in case.get("variation", {}).items()]
        options = {"noise_options": ",".join(noise)} if noise else {}
        if name in COUNTED:
            options["counts"] = [[step for step, _ in self.counts], self.counts[0][1]]
        return {"case": name, "dialect": "a1111", "noise": "auto", **options, **case,
                "latents": summary("latents", nhwc(x), first=16),
                "pixels": summary("pixels", nhwc(pixels.clamp(-1, 1)), first=16)}


def fills():
    """Pictures whose masked part has the colours around it."""
    import numpy as np
    from modules import masking
    from record import summary
    out = []
    for name, height, width in [("mask", 64, 64), ("mask", 96, 56), ("soft_mask", 64, 96)]:
        mask = Image.fromarray(getattr(small, name)(height, width).numpy())
        image = Image.fromarray(small.picture(height, width).numpy())
        data = torch.from_numpy(np.array(masking.fill(image, mask)))
        out.append(dict(mask=name, height=height, width=width,
                        filled=summary("filled", data.float(), first=16)))
    return out


def load(path, data):
    """The modules of the web UI, told to compute on a processor."""
    os.environ["IGNORE_CMD_ARGS_ERRORS"] = "1"
    sys.argv = ["webui", "--skip-torch-cuda-test", "--no-half", "--use-cpu", "all", "--nowebui",
                "--no-download-sd-model", "--disable-console-progressbars", "--data-dir", data,
                "--skip-version-check", "--disable-safe-unpickle", "--no-hashing"]
    sys.path.insert(0, str(path))
    os.chdir(path)
    from modules import initialize
    initialize.imports()
    from modules import (devices, extra_networks, sd_hijack, sd_hijack_optimizations, sd_samplers,
                         script_callbacks, upscaler, shared)
    sd_samplers.set_samplers()
    shared.sd_upscalers = upscaler.UpscalerLanczos().scalers
    script_callbacks.on_list_optimizers(sd_hijack_optimizations.list_optimizers)
    sd_hijack.list_optimizers()
    extra_networks.initialize()
    # its built-in extension for LoRAs, as its user interface starts it
    sys.path[:0] = [str(path / "extensions-builtin" / "Lora" / p) for p in ("", "scripts")]
    import lora_script  # noqa: F401
    import extra_networks_lora
    lora_script.networks.extra_network_lora = extra_networks_lora.ExtraNetworkLora()
    extra_networks.register_extra_network(lora_script.networks.extra_network_lora)
    devices.dtype = devices.dtype_vae = devices.dtype_unet = torch.float32


def absolute(path):
    """Of a path of the command line: load() changes the folder."""
    return Path(path).resolve()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--webui", type=absolute, required=True, help="a checkout of the web UI")
    parser.add_argument("--tokenizer", type=absolute, required=True,
                        help="a folder with CLIP's vocab.json and merges.txt, for transformers")
    parser.add_argument("--out", type=absolute, required=True)
    parser.add_argument("--version", required=True, help="of the checkout")
    parser.add_argument("--only", default="",
                        help="cases whose names have this, a regular expression; writes nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    with torch.no_grad(), tempfile.TemporaryDirectory() as data:
        load(args.webui, data)
        from generate import write
        all_runs = Runs(data, args.tokenizer)
        for name, case in cases().items():
            if re.search(args.only, name):
                runs.append(all_runs.run(name, case))
                print(name, runs[-1]["latents"]["l2"], flush=True)
        filled = fills()
    if args.only:
        return
    write(args.out / "webui_runs.json", {
        "generator": {"python": platform.python_version(), "torch": torch.__version__,
                      "webui": args.version, "rule": "tools/golden/hashed_weights.py"},
        "networks": small.NETWORKS, "fills": filled, "runs": runs})


if __name__ == "__main__":
    main()
