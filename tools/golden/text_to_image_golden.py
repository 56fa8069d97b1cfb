"""Golden runs from text to pixels: python text_to_image_golden.py --out tests/golden.

The pipelines of Stable Diffusion 1 and XL at small sizes, in float32: transformers' tokenizer and
text models, diffusers' U-Net, scheduler and autoencoder, put together here as diffusers' pipelines
do, with guidance and a negative prompt. Weights are hashed by the names of the original files; the
noise is torch's, from a seed.
"""

import argparse
import gzip
import os
import platform
import sys
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
import diffusers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
import component_golden  # noqa: E402
import ldm_cases  # noqa: E402
import ldm_golden  # noqa: E402
import tokenizer_golden  # noqa: E402
from generate import write  # noqa: E402
from record import nhwc, summary  # noqa: E402

LENGTH = 77
BETAS = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
AUTOENCODER = dict(latent_channels=4, channels=32, channel_mult=[1, 1, 1, 1], res_blocks=1,
                   groups=16, quant_conv=True)
TEXT = dict(width=32, layers=4, heads=4, hidden=48, vocabulary=49408, positions=77, projection=0,
            activation="quick_gelu")
SD1 = dict(num_heads=8, num_head_channels=0, conv_projection=True)
XL = dict(input_depths=[0, 0, 2, 2], middle_depth=2, output_depths=[2] * 3 + [0] * 3, context=64,
          vector=24 + 6 * 8, sizes=6)
XL_TEXTS = [dict(TEXT, width=24), dict(TEXT, width=40, projection=24, activation="gelu")]
PROMPT, NEGATIVE = "a red fox in deep snow, at dawn", "blurry"

CASES = {
    "sd1_euler": dict(unet=SD1, texts=[TEXT], scheduler="euler", steps=20, height=64, width=128),
    "sd1_ddim": dict(unet=SD1, texts=[TEXT], scheduler="ddim", steps=20, height=64, width=64),
    "sd1_dpmpp_2m": dict(unet=SD1, texts=[TEXT], scheduler="dpmpp_2m", steps=20, height=64,
                         width=64),
    "sd1_pndm": dict(unet=SD1, texts=[TEXT], scheduler="pndm", steps=20, height=64, width=64),
    "sd1_plms": dict(unet=SD1, texts=[TEXT], scheduler="plms", steps=20, height=64, width=64),
    "xl_euler": dict(unet=XL, texts=XL_TEXTS, scheduler="euler", steps=20, height=64, width=96),
}

SCHEDULERS = {
    "pndm": (diffusers.PNDMScheduler, dict(timestep_spacing="leading", steps_offset=1)),
    "plms": (diffusers.PNDMScheduler, dict(timestep_spacing="leading", steps_offset=1,
                                           skip_prk_steps=True)),
    "euler": (diffusers.EulerDiscreteScheduler, dict(timestep_spacing="leading", steps_offset=1)),
    "ddim": (diffusers.DDIMScheduler, dict(timestep_spacing="leading", steps_offset=1,
                                           clip_sample=False, set_alpha_to_one=False)),
    "dpmpp_2m": (diffusers.DPMSolverMultistepScheduler, {}),
}
# how ebb names the same
OURS = {
    "pndm": dict(sampler="pndm", schedule="leading"),
    "plms": dict(sampler="plms", schedule="leading"),
    "euler": dict(sampler="euler", schedule="leading"),
    "ddim": dict(sampler="ddim", schedule="leading", schedule_options="last=sigma_min"),
    "dpmpp_2m": dict(sampler="dpmpp_2m", schedule="linspace",
                     schedule_options="skip_last=true"),
}


def text_model(c):
    end = c["vocabulary"] - 1
    config = transformers.CLIPTextConfig(
        vocab_size=c["vocabulary"], hidden_size=c["width"], intermediate_size=c["hidden"],
        projection_dim=c["projection"] or 1, num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"], max_position_embeddings=c["positions"],
        hidden_act=c["activation"], bos_token_id=end - 1, eos_token_id=end, pad_token_id=end)
    return component_golden.fill(transformers.CLIPTextModelWithProjection(config), lambda n: n)


def autoencoder(c):
    levels = len(c["channel_mult"])
    module = diffusers.AutoencoderKL(
        block_out_channels=[c["channels"] * m for m in c["channel_mult"]],
        down_block_types=["DownEncoderBlock2D"] * levels,
        up_block_types=["UpDecoderBlock2D"] * levels, layers_per_block=c["res_blocks"],
        latent_channels=c["latent_channels"], norm_num_groups=c["groups"])
    return component_golden.fill(module, lambda n: component_golden.vae_name(n, levels))


def encoded(tokenizer, models, prompt, xl):
    """States [1,77,C] and, of XL, the pooled text."""
    states, pooled = [], None
    for k, model in enumerate(models):
        pad = 0 if xl and k == 1 else 49407
        ids = tokenizer(prompt, truncation=True, max_length=LENGTH)["input_ids"]
        end = len(ids) - 1
        ids = torch.tensor([ids + [pad] * (LENGTH - len(ids))])
        out = model(input_ids=ids, output_hidden_states=True)
        if not xl:
            states.append(out.last_hidden_state)
            continue
        states.append(out.hidden_states[-2])
        pooled = model.text_projection(out.last_hidden_state[:, end])
    return torch.cat(states, dim=-1), pooled


def prompt_of(parts):
    """As A1111 writes it."""
    return " AND ".join(p if weight == 1 else f"{p} :{weight}" for p, weight in parts)


def run(name, case, tokenizer, control=None, prepare=None):
    """control(step, steps, x, t, states, more): what the U-Net is given besides, of both halves;
    prepare(unet): what is done to it first."""
    c = {**ldm_cases.DEFAULTS, **case["unet"]}
    xl = c["vector"] > 0
    unet = ldm_cases.unet(c)
    ldm_golden.fill(unet, ldm_cases.names_of(unet, c))
    if prepare:
        prepare(unet)
    texts = [text_model(t) for t in case["texts"]]
    vae = autoencoder(AUTOENCODER)
    scale = 0.13025 if xl else 0.18215
    kind, options = SCHEDULERS[case["scheduler"]]
    scheduler = kind(**BETAS, **options)
    scheduler.set_timesteps(case["steps"])
    height, width, guidance, seed = case["height"], case["width"], 5.0, 7
    parts = case.get("parts", [(PROMPT, 1)])  # of the prompt, each with its weight
    branches = [encoded(tokenizer, texts, p, xl) for p in [NEGATIVE] + [p for p, _ in parts]]
    more = {}
    if xl:
        sizes = torch.tensor([[height, width, 0, 0, height, width]] * len(branches),
                             dtype=torch.float32)
        more["added_cond_kwargs"] = {"text_embeds": torch.cat([b[1] for b in branches]),
                                     "time_ids": sizes}
    states = torch.cat([b[0] for b in branches])
    noise = torch.randn([1, 4, height // 8, width // 8], generator=torch.manual_seed(seed))
    x = noise * scheduler.init_noise_sigma
    for i, t in enumerate(scheduler.timesteps):
        both = scheduler.scale_model_input(torch.cat([x] * len(branches)), t)
        extra = control(i, case["steps"], both, t, states, more) if control else {}
        negative, *positive = unet(both, t, encoder_hidden_states=states,
                                   **{**more, **extra}).sample.chunk(len(branches))
        change = sum(weight * (p - negative) for p, (_, weight) in zip(positive, parts))
        x = scheduler.step(negative + guidance * change, t, x).prev_sample
    pixels = vae.decode(x / scale).sample.clamp(-1, 1)
    return {"case": name, "unet": c, "texts": case["texts"], "autoencoder": AUTOENCODER,
            "prompt": prompt_of(parts), "negative": NEGATIVE, "guidance": guidance, "seed": seed,
            "steps": case["steps"], "height": height, "width": width, **OURS[case["scheduler"]],
            "states": summary("states", states[1:], first=16),
            "latents": summary("latents", nhwc(x), first=16),
            "pixels": summary("pixels", nhwc(pixels), first=16)}


def arguments(about):
    """The folder of --out, and the tokenizer of --merges."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--merges", type=Path, required=True,
                        help="clip_merges.txt.gz, as scripts/setup fetches it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = gzip.open(args.merges, "rt", encoding="utf-8").read().split("\n")
    return args.out, tokenizer_golden.reference(lines[1:48895])


def record_runs(about, make):
    """A generator's main: make(tokenizer) gives the values of each file, which get the versions."""
    out, tokenizer = arguments(about)
    with torch.no_grad():
        files = make(tokenizer)
    versions = {"python": platform.python_version(), "torch": torch.__version__,
                "diffusers": diffusers.__version__, "transformers": transformers.__version__,
                "rule": "tools/golden/hashed_weights.py"}
    for file, values in files.items():
        write(out / file, {"generator": versions, **values})


def main():
    record_runs(__doc__, lambda tokenizer: {"text_to_image.json": {
        "runs": [run(name, case, tokenizer) for name, case in CASES.items()]}})


if __name__ == "__main__":
    main()
