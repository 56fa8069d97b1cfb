"""Golden files of image adapters: python ip_adapter_golden.py --out tests/golden --merges FILE.

CLIP's vision encoder (transformers) and the projections of IP-Adapters (diffusers) at small sizes
on hashed weights, pixels as CLIPImageProcessor makes them, and whole runs with diffusers'
IP-Adapter, put together as in text_to_image_golden.py. Images are pattern(height, width, seed) of
control_run_golden.py.
"""

import platform
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import text_to_image_golden as runs  # noqa: E402
import component_golden as components  # noqa: E402
import diffusers  # noqa: E402
import ldm_cases  # noqa: E402
import ldm_golden  # noqa: E402
import numpy as np  # noqa: E402
import PIL  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from control_run_golden import SD1, XL, pattern  # noqa: E402
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel  # noqa: E402
from generate import write  # noqa: E402
from hashed_weights import hashed_input, hashed_parameter  # noqa: E402
from record import image, image_spec  # noqa: E402

# ---- the vision encoder ----------------------------------------------------------------------

VISION = dict(width=32, layers=4, heads=2, hidden=37, image_size=28, patch=7, projection=24,
              activation="gelu")


def vision_model(c):
    config = transformers.CLIPVisionConfig(
        hidden_size=c["width"], intermediate_size=c["hidden"], projection_dim=c["projection"],
        num_hidden_layers=c["layers"], num_attention_heads=c["heads"], image_size=c["image_size"],
        patch_size=c["patch"], hidden_act=c["activation"], attn_implementation="sdpa")
    return components.fill(transformers.CLIPVisionModelWithProjection(config), lambda n: n)


def vision_case(name, **changes):
    c = {**VISION, **changes}
    module = vision_model(c)
    pixels = [2, c["image_size"], c["image_size"], 3]

    def call(m, dtype):
        r = m(image("input.pixels", pixels).to(dtype), output_hidden_states=True)
        states = list(r.hidden_states)
        assert len(states) == c["layers"] + 1
        out = {f"states.{n}": states[-n] for n in range(1, len(states) + 1)}
        pooled = m.vision_model.post_layernorm(states[-1][:, 0])
        assert torch.allclose(m.visual_projection(pooled), r.image_embeds, atol=1e-2)
        return {**out, "pooled": pooled, "projected": r.image_embeds}

    inputs = {"pixels": image_spec("input.pixels", pixels)}
    return dict(case=name, model="clip_vision", config=c, module=module, calls=[
        components.record_call("encode", inputs, components.evaluate(module, call))])


# ---- projections and adapters ----------------------------------------------------------------

LINEAR = dict(kind="linear", features=24, tokens=4, context=32, widths=[16, 32, 16, 32],
              runs=[1, 3, 2, 1], hidden=0, depth=0, inner=0)
RESAMPLER = dict(LINEAR, kind="resampler", features=32, tokens=5, hidden=40, depth=4, inner=128)
MLP = dict(LINEAR, kind="mlp", features=32, tokens=0)


def tensors(c):
    """The tensors of an adapter's file, hashed by their names."""
    shapes = {}

    def add(name, *shape):
        shapes[name] = shape

    p, h, ctx, feat = "image_proj.", c["hidden"], c["context"], c["features"]
    if c["kind"] == "linear":
        add(p + "proj.weight", c["tokens"] * ctx, feat)
        add(p + "proj.bias", c["tokens"] * ctx)
        add(p + "norm.weight", ctx)
        add(p + "norm.bias", ctx)
    elif c["kind"] == "mlp":
        for layer, out in (("0", feat), ("2", ctx)):
            add(f"{p}proj.{layer}.weight", out, feat)
            add(f"{p}proj.{layer}.bias", out)
        add(p + "proj.3.weight", ctx)
        add(p + "proj.3.bias", ctx)
    else:
        add(p + "latents", 1, c["tokens"], h)
        for layer, out, width in (("proj_in", h, feat), ("proj_out", ctx, h)):
            add(f"{p}{layer}.weight", out, width)
            add(f"{p}{layer}.bias", out)
        add(p + "norm_out.weight", ctx)
        add(p + "norm_out.bias", ctx)
        for i in range(c["depth"]):
            q = f"{p}layers.{i}."
            for norm in ("0.norm1", "0.norm2", "1.0"):
                add(f"{q}{norm}.weight", h)
                add(f"{q}{norm}.bias", h)
            add(q + "0.to_q.weight", c["inner"], h)
            add(q + "0.to_kv.weight", 2 * c["inner"], h)
            add(q + "0.to_out.weight", h, c["inner"])
            add(q + "1.1.weight", 4 * h, h)
            add(q + "1.3.weight", h, 4 * h)
    layer = 0
    for width, run in zip(c["widths"], c["runs"]):
        for _ in range(run):
            for name in ("k", "v"):
                add(f"ip_adapter.{2 * layer + 1}.to_{name}_ip.weight", width, ctx)
            layer += 1
    return {n: torch.from_numpy(hashed_parameter(n, s)) for n, s in shapes.items()}


def parts(c):
    """As diffusers reads a file: {"image_proj": ..., "ip_adapter": ...}."""
    out = {"image_proj": {}, "ip_adapter": {}}
    for name, tensor in tensors(c).items():
        part, rest = name.split(".", 1)
        out[part][rest] = tensor
    return out


def projection(c):
    loader = UNet2DConditionModel(block_out_channels=(4, 8), norm_num_groups=2,
                                  down_block_types=("DownBlock2D", "DownBlock2D"),
                                  up_block_types=("UpBlock2D", "UpBlock2D"))
    return loader._convert_ip_adapter_image_proj_to_diffusers(
        parts(c)["image_proj"], low_cpu_mem_usage=False).float().eval()


def projection_case(name, c):
    module = projection(c)
    shape = [2, 1 if c["kind"] == "linear" else 17, c["features"]]

    def call(m, dtype):
        x = torch.from_numpy(hashed_input("input.hint", shape)).to(dtype)
        return {"tokens": m(x[:, 0] if c["kind"] == "linear" else x)}

    inputs = {"hint": {"hash": "input.hint", "shape": shape, "scale": "sqrt(3)"}}
    case = dict(case=name, model="ip_adapter", config=c, module=module, calls=[
        components.record_call("tokens", inputs, components.evaluate(module, call))])
    case["parameters"] = sum(t.numel() for t in tensors(c).values())
    return case


# ---- pixels ----------------------------------------------------------------------------------

SIZES = [(300, 420), (500, 224), (150, 97), (224, 224)]


def pixels():
    """What CLIPImageProcessor makes of patterns, by its two implementations."""
    kinds = {"torchvision": transformers.CLIPImageProcessor,
             "pil": transformers.models.clip.image_processing_pil_clip.CLIPImageProcessorPil}
    out = []
    for seed, (height, width) in enumerate(SIZES, 1):
        picture = PIL.Image.fromarray(pattern(height, width, seed))
        case = {"height": height, "width": width, "seed": seed}
        for kind, build in kinds.items():
            x = build()(picture, return_tensors="pt").pixel_values[0]
            x = x.permute(1, 2, 0).contiguous()
            # a row, a column, and what the whole amounts to
            case[kind] = {"shape": list(x.shape),
                          "row": [round(v, 5) for v in x[101].flatten().tolist()[:96]],
                          "column": [round(v, 5) for v in x[:, 37].flatten().tolist()[-96:]],
                          "mean": float(x.double().mean())}
        out.append(case)
    return out


# ---- whole runs ------------------------------------------------------------------------------

def layers_of(c):
    """Widths of the U-Net's layers that attend to text, encoder, decoder, middle, as runs."""
    channels = [m * c["model_channels"] for m in c["channel_mult"]]
    blocks = c["num_res_blocks"]
    order = [(channels[i // blocks], d) for i, d in enumerate(c["input_depths"])]
    order += [(channels[-1 - i // (blocks + 1)], d) for i, d in enumerate(c["output_depths"])]
    order += [(channels[-1], c["middle_depth"])]
    widths, counts = [], []
    for width, depth in order:
        if depth and widths and widths[-1] == width:
            counts[-1] += depth
        elif depth:
            widths.append(width)
            counts.append(depth)
    return dict(widths=widths, runs=counts)


LEVELS = dict(SD1, unet=dict(runs.SD1, input_depths=[1, 1, 1, 1],
                             output_depths=[1, 1, 1, 1, 1, 1]))
# the adapter reads `projected` (24 channels) or states (32) of VISION
RUNS = {
    "sd1": (LEVELS, [(LINEAR, dict(seed=1, strength=0.7))]),
    "sd1_plus": (LEVELS, [(RESAMPLER, dict(seed=2, strength=0.9))]),
    "sd1_full_face": (SD1, [(MLP, dict(seed=3, strength=0.6))]),
    "sd1_two": (LEVELS, [(LINEAR, dict(seed=1, strength=0.5)),
                         (RESAMPLER, dict(seed=3, strength=0.4))]),
    "xl": (XL, [(LINEAR, dict(seed=2, strength=0.8))]),
    "xl_plus": (XL, [(RESAMPLER, dict(seed=1, strength=1.0))]),
}


def picture_of(seed):
    """Of the size that the encoder reads, so that no filter is involved."""
    return pattern(VISION["image_size"], VISION["image_size"], seed)


def features(encoder, adapter, given):
    """[negative, positive] of what an adapter reads, as diffusers' pipelines make them."""
    process = transformers.CLIPImageProcessor(
        size={"shortest_edge": VISION["image_size"]},
        crop_size={"height": VISION["image_size"], "width": VISION["image_size"]})
    x = process(PIL.Image.fromarray(picture_of(given["seed"])), return_tensors="pt").pixel_values
    if adapter["kind"] == "linear":
        embeds = encoder(x).image_embeds
        return torch.cat([torch.zeros_like(embeds), embeds])[:, None]
    states = [encoder(v, output_hidden_states=True).hidden_states[-2]
              for v in (torch.zeros_like(x), x)]
    return torch.cat(states)[:, None]


def run(name, case, given, tokenizer):
    c = {**ldm_cases.DEFAULTS, **case["unet"]}
    adapters = [{**adapter, "context": c["context"], **layers_of(c)} for adapter, _ in given]
    encoder = vision_model(VISION)
    embeds = [features(encoder, a, i) for a, (_, i) in zip(adapters, given)]

    def control(step, steps, x, t, states, more):
        return {"added_cond_kwargs": {**more.get("added_cond_kwargs", {}), "image_embeds": embeds}}

    def prepare(unet):
        unet._load_ip_adapter_weights([parts(a) for a in adapters], low_cpu_mem_usage=False)
        for processor in unet.attn_processors.values():
            if hasattr(processor, "to_k_ip"):
                processor.scale = [i["strength"] for _, i in given]
        unet.eval().requires_grad_(False)

    out = runs.run(name, case, tokenizer, control, prepare)
    return {**out, "adapters": adapters, "encoder": VISION, "inputs": [i for _, i in given]}


def main():
    out, tokenizer = runs.arguments(__doc__)
    versions = {"python": platform.python_version(), "torch": torch.__version__,
                "numpy": np.__version__, "transformers": transformers.__version__,
                "diffusers": diffusers.__version__, "pillow": PIL.__version__,
                "rule": "tools/golden/hashed_weights.py"}
    cases = [vision_case("clip_vision"),
             vision_case("clip_vision_quick", activation="quick_gelu", image_size=21, layers=2),
             projection_case("ip_adapter_linear", LINEAR),
             projection_case("ip_adapter_resampler", RESAMPLER),
             projection_case("ip_adapter_mlp", MLP)]
    for case in cases:
        module = case.pop("module")
        case.setdefault("parameters", sum(p.numel() for p in module.parameters()))
        write(out / f"{case['case']}.json", {"generator": versions, **case})
    with torch.no_grad():
        made = [run(name, case, given, tokenizer) for name, (case, given) in RUNS.items()]
    write(out / "image_adapter_runs.json",
          {"generator": versions, "pixels": pixels(), "runs": made})


if __name__ == "__main__":
    main()
