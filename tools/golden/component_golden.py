"""Golden files of text encoders and autoencoders: python component_golden.py --out tests/golden.

Runs transformers' CLIP text model and diffusers' AutoencoderKL and AutoencoderTiny at small sizes
on hashed weights and inputs, in float32 and float64. A weight is hashed by its name in the original
files, whatever the library calls it. Every case has the calls of our entry points with their
inputs, summaries of the outputs (record.py), and the library's names by the original ones.
"""

import argparse
import copy
import os
import platform
import re
import sys
from pathlib import Path

# oneDNN takes some virtual machines to have instructions that they trap
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
import diffusers  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
from generate import write  # noqa: E402
from hashed_weights import hashed_parameter  # noqa: E402
from record import image, image_spec, nhwc, rel_error, summary  # noqa: E402

# ---- names of the original files -------------------------------------------------------------


def vae_name(name, levels):
    """diffusers' AutoencoderKL -> the original: decoder levels count from the finest there."""
    up = re.match(r"decoder\.up_blocks\.(\d+)\.", name)
    if up:
        name = name.replace(up[0], f"decoder.up.{levels - 1 - int(up[1])}.")
    for new, old in [("down_blocks", "down"), ("resnets", "block"),
                     ("downsamplers.0.conv", "downsample.conv"),
                     ("upsamplers.0.conv", "upsample.conv"), ("conv_shortcut", "nin_shortcut"),
                     ("mid_block.attentions.0", "mid.attn_1"), ("mid_block.block.0", "mid.block_1"),
                     ("mid_block.block.1", "mid.block_2"), ("group_norm", "norm"),
                     ("to_out.0", "proj_out"), ("to_q", "q"), ("to_k", "k"), ("to_v", "v"),
                     ("conv_norm_out", "norm_out")]:
        name = name.replace(new, old)
    return name


def taesd_name(name):
    """diffusers' AutoencoderTiny -> the original, whose decoder has a layer more at the start."""
    half, layer, rest = re.match(r"(encoder|decoder)\.layers\.(\d+)\.(.*)", name).groups()
    return f"taesd_{half}.{int(layer) + (half == 'decoder')}.{rest}"


def fill(module, original_name):
    with torch.no_grad():
        for name, p in module.named_parameters():
            old = original_name(name)
            # 1x1 convolutions are matrices in diffusers: the same fan-in
            p.copy_(torch.from_numpy(hashed_parameter(old, p.shape)))
    module.original_name = original_name
    return module.eval()


# ---- calls -----------------------------------------------------------------------------------


def evaluate(module, call):
    """{output: (float64, float32, bf16, f16)} of call(module, exact): {name: tensor}."""
    with torch.no_grad():
        single = call(module, torch.float32)
        exact = call(copy.deepcopy(module).double(), torch.float64)
        low = []
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", dtype=dtype):
                low.append(call(copy.deepcopy(module), torch.float32))
    return {n: (exact[n], single[n], *(v[n].float() for v in low)) for n in exact}


def record_call(entry, inputs, results):
    out = {}
    for name, (exact, single, bf16, f16) in results.items():
        out[name] = summary(f"{entry}.{name}", nhwc(exact), nhwc(single), first=16)
        for dtype, low in {"bf16": bf16, "f16": f16}.items():
            out[name][f"{dtype}_rel_error"] = float(f"{rel_error(low, exact):.3g}")
    return {"entry": entry, "inputs": inputs, "outputs": out}


# ---- text encoders ---------------------------------------------------------------------------


def clip_config(**changes):
    c = dict(width=32, layers=5, heads=4, hidden=37, vocabulary=1000, positions=77, projection=24,
             activation="quick_gelu")
    return {**c, **changes}


def clip_tokens(c, count):
    """Two texts: start, words, end, and what fills up; the second is full."""
    start, end = c["vocabulary"] - 2, c["vocabulary"] - 1
    words = [(i * i * 7 + 13) % (c["vocabulary"] - 2) for i in range(count + 5)]
    short = [start, *words[:5], end]
    return [short + [end] * (count - len(short)), [start, *words[5:count + 3], end]], [6, count - 1]


def clip_case(name, count, **changes):
    c = clip_config(**changes)
    end_id = c["vocabulary"] - 1
    config = transformers.CLIPTextConfig(
        vocab_size=c["vocabulary"], hidden_size=c["width"], intermediate_size=c["hidden"],
        projection_dim=c["projection"], num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"], max_position_embeddings=c["positions"],
        hidden_act=c["activation"], bos_token_id=end_id - 1, eos_token_id=end_id,
        pad_token_id=end_id, attn_implementation="sdpa")
    module = fill(transformers.CLIPTextModelWithProjection(config), lambda n: n)
    tokens, ends = clip_tokens(c, count)
    tokens[1] = tokens[1][:count - 1] + [end_id]

    def call(m, dtype):
        r = m(input_ids=torch.tensor(tokens), output_hidden_states=True)
        text = m.text_model
        norm = text.final_layer_norm
        states = list(r.hidden_states)
        assert torch.allclose(norm(states[-1]), r.last_hidden_state, atol=1e-2)
        assert len(states) == c["layers"] + 1
        pooled = r.last_hidden_state[torch.arange(2), torch.tensor(ends)]
        assert torch.allclose(m.text_projection(pooled), r.text_embeds, atol=1e-2)
        out = {"pooled": pooled, "projected": r.text_embeds}
        for n in range(1, len(states) + 1):
            out[f"states.{n}"] = states[-n]
        for n in (1, 2):
            out[f"states.{n}.normed"] = norm(states[-n])
        return out

    inputs = {"tokens": {"ids": tokens}, "end": {"ids": ends}}
    return dict(case=name, model="clip_text", config=c, module=module,
                calls=[record_call("encode", inputs, evaluate(module, call))])


# ---- autoencoders ----------------------------------------------------------------------------


def vae_config(**changes):
    return {**dict(latent_channels=4, channels=32, channel_mult=[1, 2], res_blocks=2, groups=16,
                   quant_conv=True), **changes}


def vae_module(c):
    levels = len(c["channel_mult"])
    module = diffusers.AutoencoderKL(
        block_out_channels=[c["channels"] * m for m in c["channel_mult"]],
        down_block_types=["DownEncoderBlock2D"] * levels,
        up_block_types=["UpDecoderBlock2D"] * levels, layers_per_block=c["res_blocks"],
        latent_channels=c["latent_channels"], norm_num_groups=c["groups"],
        use_quant_conv=c["quant_conv"], use_post_quant_conv=c["quant_conv"])
    return fill(module, lambda n: vae_name(n, levels))


def vae_case(name, size, **changes):
    c = vae_config(**changes)
    module = vae_module(c)
    pixels, factor = [2, *size, 3], 2 ** (len(c["channel_mult"]) - 1)
    latents = [2, size[0] // factor, size[1] // factor, c["latent_channels"]]

    def encode(m, dtype):
        d = m.encode(image("input.pixels", pixels).to(dtype)).latent_dist
        return {"mean": d.mean, "logvar": d.logvar}

    def decode(m, dtype):
        return {"pixels": m.decode(image("input.latents", latents).to(dtype)).sample}

    return dict(case=name, model="autoencoder_kl", config=c, module=module, calls=[
        record_call("encode", {"pixels": image_spec("input.pixels", pixels)},
                    evaluate(module, encode)),
        record_call("decode", {"latents": image_spec("input.latents", latents)},
                    evaluate(module, decode))])


def taesd_case(name, size, **changes):
    c = dict(latent_channels=4, width=32, levels=1, blocks=1)
    c.update(changes)
    stages = c["levels"] + 1
    module = diffusers.AutoencoderTiny(
        latent_channels=c["latent_channels"], encoder_block_out_channels=[c["width"]] * stages,
        decoder_block_out_channels=[c["width"]] * stages,
        num_encoder_blocks=[1] + [c["blocks"]] * c["levels"],
        num_decoder_blocks=[c["blocks"]] * c["levels"] + [1])
    fill(module, taesd_name)
    pixels, factor = [2, *size, 3], 2 ** c["levels"]
    latents = [2, size[0] // factor, size[1] // factor, c["latent_channels"]]

    def encode(m, dtype):
        return {"mean": m.encode(image("input.pixels", pixels).to(dtype)).latents}

    def decode(m, dtype):
        return {"pixels": m.decode(image("input.latents", latents).to(dtype)).sample}

    return dict(case=name, model="taesd", config=c, module=module, calls=[
        record_call("encode", {"pixels": image_spec("input.pixels", pixels)},
                    evaluate(module, encode)),
        record_call("decode", {"latents": image_spec("input.latents", latents)},
                    evaluate(module, decode))])


def cases():
    yield clip_case("clip_quick_gelu", 77)
    yield clip_case("clip_gelu", 19, activation="gelu", width=48, layers=2, heads=2, hidden=64)
    yield vae_case("autoencoder_kl", [20, 28])
    # three levels: their order in the decoder shows
    yield vae_case("autoencoder_kl16", [24, 40], latent_channels=16, channels=16,
                   channel_mult=[1, 2, 3], res_blocks=1, groups=8, quant_conv=False)
    yield taesd_case("taesd", [16, 24])
    yield taesd_case("taesd_full", [32, 40], latent_channels=16, width=64, levels=3, blocks=3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"python": platform.python_version(), "torch": torch.__version__,
                "numpy": np.__version__, "transformers": transformers.__version__,
                "diffusers": diffusers.__version__, "rule": "tools/golden/hashed_weights.py"}
    for case in cases():
        module = case.pop("module")
        parameters = sum(p.numel() for p in module.parameters())
        names = {module.original_name(n): n for n, _ in module.named_parameters()}
        names = {old: new for old, new in names.items() if old != new}
        write(args.out / f"{case['case']}.json",
              {"generator": versions, **case, "parameters": parameters, "names": names})


if __name__ == "__main__":
    main()
