"""Golden weights and outputs of adapters: python adapter_golden.py --out tests/golden.

LyCORIS' own modules, PEFT and diffusers merge hashed adapters into hashed weights of the small
U-Net of Stable Diffusion 1 (ldm_cases.py), in float32. Adapters' tensors are hashed by their own
names, or are the values that a case gives; nothing of them is stored but names, shapes and scales.
Needs lycoris-lora and peft from PyPI beside what text_to_image_golden.py needs.
"""

import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
import diffusers  # noqa: E402
import numpy as np  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
from lycoris import modules as lycoris  # noqa: E402,F401
from lycoris.modules.boft import ButterflyOFTModule  # noqa: E402
from lycoris.modules.diag_oft import DiagOFTModule  # noqa: E402
from lycoris.modules.full import FullModule  # noqa: E402
from lycoris.modules.glora import GLoRAModule  # noqa: E402
from lycoris.modules.ia3 import IA3Module  # noqa: E402
from lycoris.modules.locon import LoConModule  # noqa: E402
from lycoris.modules.loha import LohaModule  # noqa: E402
from lycoris.modules.lokr import LokrModule  # noqa: E402
from lycoris.modules.norms import NormModule  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ldm_cases  # noqa: E402
import ldm_golden  # noqa: E402
import text_to_image_golden as runs  # noqa: E402
from generate import write  # noqa: E402
from hashed_weights import hash_values, hashed_parameter  # noqa: E402
from record import nhwc, summary  # noqa: E402

CONFIG = {**ldm_cases.DEFAULTS, **ldm_cases.CASES["ldm_sd1"]}
BLOCK, KOHYA = "input_blocks.4", "lora_unet_down_blocks_1_"
# the original's layer: [what kohya and LyCORIS call it, module]
LAYERS = {
    "to_q": (f"{BLOCK}.1.transformer_blocks.0.attn1.to_q",
             f"{KOHYA}attentions_0_transformer_blocks_0_attn1_to_q",
             lambda: torch.nn.Linear(64, 64, bias=False)),
    "ff": (f"{BLOCK}.1.transformer_blocks.0.ff.net.0.proj",
           f"{KOHYA}attentions_0_transformer_blocks_0_ff_net_0_proj",
           lambda: torch.nn.Linear(64, 512)),
    "proj_in": (f"{BLOCK}.1.proj_in", f"{KOHYA}attentions_0_proj_in",
                lambda: torch.nn.Conv2d(64, 64, 1)),
    "conv": (f"{BLOCK}.0.in_layers.2", f"{KOHYA}resnets_0_conv1",
             lambda: torch.nn.Conv2d(32, 64, 3, padding=1)),
    "norm": (f"{BLOCK}.0.in_layers.0", f"{KOHYA}resnets_0_norm1",
             lambda: torch.nn.GroupNorm(16, 32)),
}
R = 4


def tensor_of(spec):
    name, shape, scale, offset = spec
    values = offset + scale * hash_values(name, int(np.prod(shape)))
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def filled(layer):
    original, _, make = LAYERS[layer]
    module = make().requires_grad_(False)
    for name, p in module.named_parameters():
        p.copy_(torch.from_numpy(hashed_parameter(f"{original}.{name}", p.shape)))
    return module


def spec(stem, suffix, *shape, scale=0.3, offset=0.0):
    return [f"{stem}.{suffix}", list(shape), scale, offset]


def value(stem, suffix, v):
    return [f"{stem}.{suffix}", [], 0.0, float(v)]


# case: (layer, LyCORIS' module, {argument: (suffix, shape, further)}, alpha, strength)
LYCORIS = {
    "lora_linear": ("to_q", LoConModule, dict(
        up=("lora_up.weight", (64, R)), down=("lora_down.weight", (R, 64))), 2, 0.7),
    "lora_1x1": ("proj_in", LoConModule, dict(
        up=("lora_up.weight", (64, R, 1, 1)), down=("lora_down.weight", (R, 64, 1, 1))), 2, 1),
    "lora_conv": ("conv", LoConModule, dict(
        up=("lora_up.weight", (64, R, 1, 1)), down=("lora_down.weight", (R, 32, 3, 3))), 1, 0.7),
    "lora_tucker": ("conv", LoConModule, dict(
        up=("lora_up.weight", (64, R, 1, 1)), down=("lora_down.weight", (R, 32, 1, 1)),
        mid=("lora_mid.weight", (R, R, 3, 3))), 4, 1),
    "dora_rows": ("conv", LoConModule, dict(
        up=("lora_up.weight", (64, R, 1, 1)), down=("lora_down.weight", (R, 32, 3, 3)),
        dora_scale=("dora_scale", (64, 1, 1, 1), dict(offset=1.5))), 2, 1),
    "dora_columns": ("ff", LoConModule, dict(
        up=("lora_up.weight", (512, R)), down=("lora_down.weight", (R, 64)),
        dora_scale=("dora_scale", (1, 64), dict(offset=1.5))), 2, 1),
    "loha_linear": ("ff", LohaModule, dict(
        w1a=("hada_w1_a", (512, R)), w1b=("hada_w1_b", (R, 64)),
        w2a=("hada_w2_a", (512, R)), w2b=("hada_w2_b", (R, 64))), 2, 0.7),
    "loha_conv": ("conv", LohaModule, dict(
        w1a=("hada_w1_a", (64, R)), w1b=("hada_w1_b", (R, 288)),
        w2a=("hada_w2_a", (64, R)), w2b=("hada_w2_b", (R, 288))), 2, 1),
    "loha_tucker": ("conv", LohaModule, dict(
        w1a=("hada_w1_a", (R, 64)), w1b=("hada_w1_b", (R, 32)), t1=("hada_t1", (R, R, 3, 3)),
        w2a=("hada_w2_a", (R, 64)), w2b=("hada_w2_b", (R, 32)), t2=("hada_t2", (R, R, 3, 3))),
        4, -0.5),
    "loha_dora": ("to_q", LohaModule, dict(
        w1a=("hada_w1_a", (64, R)), w1b=("hada_w1_b", (R, 64)),
        w2a=("hada_w2_a", (64, R)), w2b=("hada_w2_b", (R, 64)),
        dora_scale=("dora_scale", (64, 1), dict(offset=1.5))), 2, 1),
    "lokr_whole": ("to_q", LokrModule, dict(
        w1=("lokr_w1", (8, 8)), w2=("lokr_w2", (8, 8))), 1e10, 0.7),
    "lokr_half": ("ff", LokrModule, dict(
        w1=("lokr_w1", (16, 8)), w2a=("lokr_w2_a", (32, R)), w2b=("lokr_w2_b", (R, 8))), 2, 1),
    "lokr_factored": ("ff", LokrModule, dict(
        w1a=("lokr_w1_a", (16, R)), w1b=("lokr_w1_b", (R, 8)),
        w2a=("lokr_w2_a", (32, R)), w2b=("lokr_w2_b", (R, 8))), 2, 0.7),
    "lokr_conv": ("conv", LokrModule, dict(
        w1=("lokr_w1", (8, 4)), w2=("lokr_w2", (8, 8, 3, 3))), 4, 1),
    "lokr_tucker": ("conv", LokrModule, dict(
        w1=("lokr_w1", (8, 4)), w2a=("lokr_w2_a", (2, 8)), w2b=("lokr_w2_b", (2, 8)),
        t2=("lokr_t2", (2, 2, 3, 3))), 2, 1),
    "glora_linear": ("ff", GLoRAModule, dict(
        a1=("a1.weight", (64, R)), a2=("a2.weight", (R, 64)),
        b1=("b1.weight", (512, R)), b2=("b2.weight", (R, 64))), 2, 0.7),
    "glora_conv": ("conv", GLoRAModule, dict(
        a1=("a1.weight", (32, R, 1, 1)), a2=("a2.weight", (R, 32, 1, 1)),
        b1=("b1.weight", (64, R, 1, 1)), b2=("b2.weight", (R, 32, 3, 3))), 2, 1),
    "oft": ("conv", DiagOFTModule, dict(oft_blocks=("oft_blocks", (8, 8, 8))), 0, 1),
    "oft_limited": ("to_q", DiagOFTModule, dict(oft_blocks=("oft_blocks", (8, 8, 8))), 0.02, 0.7),
    "oft_rescale": ("to_q", DiagOFTModule, dict(
        oft_blocks=("oft_blocks", (8, 8, 8)), rescale=("rescale", (64, 1), dict(offset=1.0))), 0,
        1),
    "boft": ("to_q", ButterflyOFTModule, dict(oft_blocks=("oft_blocks", (4, 8, 8, 8))), 0, 0.7),
    "boft_rescale": ("conv", ButterflyOFTModule, dict(
        oft_blocks=("oft_blocks", (4, 8, 8, 8)),
        rescale=("rescale", (64, 1, 1, 1), dict(offset=1.0))), 0, 1),
    "diff": ("conv", FullModule, dict(diff=("diff", (64, 32, 3, 3)), diff_b=("diff_b", (64,))),
             None, 0.7),
    "norm": ("norm", NormModule, dict(w_norm=("w_norm", (32,)), b_norm=("b_norm", (32,))), None,
             1),
}
FACTORY = {  # the arguments that LyCORIS' constructors by tensors want, in their order
    LoConModule: ("up", "down", "mid", "alpha", "dora_scale"),
    LohaModule: ("w1a", "w1b", "w2a", "w2b", "t1", "t2", "alpha", "dora_scale"),
    LokrModule: ("w1", "w1a", "w1b", "w2", "w2a", "w2b", "t1", "t2", "alpha", "dora_scale"),
    GLoRAModule: ("a1", "a2", "b1", "b2", "bm", "alpha"),
    DiagOFTModule: ("oft_blocks", "rescale", "alpha"),
    ButterflyOFTModule: ("oft_blocks", "rescale", "alpha"),
    FullModule: ("diff", "diff_b"),
    NormModule: ("w_norm", "b_norm"),
}


def merged_summary(name, weight):
    return summary(name, weight.detach().contiguous(), first=16)


def lycoris_case(case):
    layer, kind, arguments, alpha, strength = LYCORIS[case]
    original, kohya, _ = LAYERS[layer]
    specs, given = [], {}
    for key, (suffix, shape, *more) in arguments.items():
        specs.append(spec(kohya, suffix, *shape, **(more[0] if more else {})))
        given[key] = tensor_of(specs[-1])
    if alpha is not None:
        specs.append(value(kohya, "alpha", alpha))
        given["alpha"] = torch.tensor(float(alpha))
    module = filled(layer)
    columns = "dora_scale" in given and given["dora_scale"].shape[0] == 1
    order = [None if columns and k == "dora_scale" else given.get(k) for k in FACTORY[kind]]
    if case == "lokr_tucker":  # whose rank LyCORIS does not find again in the tensors
        made = LokrModule(kohya, module, 1, 2, float(alpha), use_tucker=True)
        for key in ("w1", "w2_a", "w2_b", "t2"):
            getattr(made, f"lokr_{key}").data.copy_(given[key.replace("_", "")])
    else:
        made = kind.make_module_from_state_dict(kohya, module, *order)
    if columns:  # which the constructor cannot tell from the tensors
        made.wd, made.wd_on_out, made.dora_scale = True, False, given["dora_scale"]
    if kind in (FullModule, NormModule):
        weight, bias = made.make_weight(strength)
    elif kind in (LohaModule, LokrModule):
        # as their forward() has it; their get_merged_weight() of 4.1.3 applies alpha / rank twice
        diff, bias = made.get_weight(module.weight.shape), None
        if "dora_scale" in given:
            weight = made.apply_weight_decompose(made.org_weight + diff, strength)
        else:
            weight = made.org_weight + strength * diff
    elif "dora_scale" in given or strength == 1:
        weight, bias = made.get_merged_weight(strength, module.weight.shape)[0], None
    else:
        diff = made.get_diff_weight(strength, module.weight.shape)[0]
        weight, bias = made.org_weight + diff, None
    out = {f"{original}.weight": merged_summary("merged", weight.reshape(module.weight.shape))}
    if bias is not None:
        out[f"{original}.bias"] = merged_summary("merged", bias)
    return {"case": case, "tensors": specs, "strength": strength, "merged": out}


def ia3_case(layer, on_input, strength):
    original, kohya, _ = LAYERS[layer]
    module = filled(layer)
    made = IA3Module(kohya, module, 1, train_on_input=on_input)
    w = spec(kohya, "weight", *made.weight.shape)
    with torch.no_grad():
        made.weight.copy_(tensor_of(w))
    weight = made.make_weight(strength)
    return {"case": f"ia3_{layer}", "tensors": [w, value(kohya, "on_input", int(on_input))],
            "strength": strength,
            "merged": {f"{original}.weight": merged_summary("merged", weight)}}


def glora_old_case():
    """Of older files of LyCORIS: W a2 a1 + b2 b1, here in plain torch."""
    original, kohya, _ = LAYERS["ff"]
    w = filled("ff").weight
    specs = [spec(kohya, "a1.weight", R, 64), spec(kohya, "a2.weight", 64, R),
             spec(kohya, "b1.weight", R, 64), spec(kohya, "b2.weight", 512, R)]
    a1, a2, b1, b2 = map(tensor_of, specs)
    return {"case": "glora_old", "tensors": specs, "strength": 0.5, "merged": {
        f"{original}.weight": merged_summary("merged", w + 0.5 * (w @ a2 @ a1 + b2 @ b1))}}


def peft_case(case, layer, **options):
    """Merged by PEFT; the file is as PEFT saves it, with what diffusers adds to the metadata."""
    original, kohya, _ = LAYERS[layer]
    dotted = {"to_q": "down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q",
              "ff": "down_blocks.1.attentions.0.transformer_blocks.0.ff.net.0.proj",
              "conv": "down_blocks.1.resnets.0.conv1"}[layer]
    model = torch.nn.ModuleDict({"layer": filled(layer)})
    config = peft.LoraConfig(r=R, lora_alpha=6, target_modules=["layer"], **options)
    model = peft.get_peft_model(model, config)
    specs = []
    with torch.no_grad():
        for name, tensor in peft.get_peft_model_state_dict(model).items():
            suffix = name.split("layer.", 1)[1]
            far = "magnitude" in suffix
            specs.append(spec(f"unet.{dotted}", suffix, *tensor.shape,
                              offset=1.5 if far else 0.0))
            inner = suffix.replace(".weight", ".default.weight").replace(
                ".bias", ".default.bias") if not far else "lora_magnitude_vector.default.weight"
            dict(model.named_parameters())[f"base_model.model.layer.{inner}"].copy_(
                tensor_of(specs[-1]))
        merged = model.merge_and_unload()["layer"]
    settings = {f"unet.{k}": v for k, v in
                dict(r=R, lora_alpha=6, alpha_pattern={}, rank_pattern={},
                     use_rslora=options.get("use_rslora", False),
                     use_dora=options.get("use_dora", False)).items()}
    out = {f"{original}.weight": merged_summary("merged", merged.weight)}
    if options.get("lora_bias"):
        out[f"{original}.bias"] = merged_summary("merged", merged.bias)
    return {"case": case, "tensors": specs, "strength": 1, "merged": out,
            "metadata": {"lora_adapter_metadata": json.dumps(settings)}}


# ---- networks --------------------------------------------------------------------------------


def kohya_lora(unet, texts):
    """A LoRA of kohya's names for the attention of the U-Net and the text encoder, rank 4."""
    specs = []

    def add(prefix, module, wanted):
        for name, m in module.named_modules():
            if not isinstance(m, torch.nn.Linear) or not any(w in name for w in wanted):
                continue
            stem = prefix + name.replace(".", "_")
            out, inner = m.weight.shape
            specs.append(spec(stem, "lora_down.weight", R, inner))
            specs.append(spec(stem, "lora_up.weight", out, R))
            specs.append(value(stem, "alpha", 2))

    add("lora_unet_", unet, ["to_q", "to_k", "to_v", "to_out.0", "ff.net"])
    for prefix, text in texts:
        # transformers has dropped `text_model.` from its names, kohya's files have it
        add(prefix if "text_model" in next(iter(text.state_dict())) else prefix + "text_model_",
            text, ["self_attn", "mlp"])
    return specs


def dotted_lora(unet, texts):
    """The same in the names of diffusers and PEFT."""
    specs = []
    for prefix, module, wanted in [("unet.", unet, ["to_q", "to_k", "to_v", "to_out.0"]),
                                   *[(p, t, ["self_attn"]) for p, t in texts]]:
        for name, m in module.named_modules():
            if isinstance(m, torch.nn.Linear) and any(w in name for w in wanted):
                out, inner = m.weight.shape
                specs.append(spec(prefix + name, "lora_A.weight", R, inner))
                specs.append(spec(prefix + name, "lora_B.weight", out, R))
    return specs


def loaded(pipeline, specs, strength):
    """With a LoRA. transformers initialises anew what its file lacks, so weights are put back."""
    models = [m for m in pipeline.components.values() if isinstance(m, torch.nn.Module)]
    saved = [{n: p.clone() for n, p in m.named_parameters()} for m in models]
    pipeline.load_lora_weights({s[0]: tensor_of(s) for s in specs}, adapter_name="a")
    for model, weights in zip(models, saved):
        for name, p in model.named_parameters():
            base = name.replace(".base_layer", "")
            if base in weights:
                p.copy_(weights.pop(base))
        assert not weights, list(weights)
    active = pipeline.get_list_adapters()
    assert set(active) >= {"unet", "text_encoder"}, active
    pipeline.set_adapters(["a"], adapter_weights=[strength])


def unet_case():
    unet = ldm_cases.unet(CONFIG)
    ldm_golden.fill(unet, ldm_cases.names_of(unet, CONFIG))
    text = runs.text_model(runs.TEXT)
    specs = kohya_lora(unet, [("lora_te_", text)])
    inputs, _ = ldm_golden.inputs_of("ldm_sd1", CONFIG)
    pipe = diffusers.StableDiffusionPipeline(None, text, None, unet, runs.SCHEDULERS["ddim"][0](),
                                             None, None, requires_safety_checker=False)
    loaded(pipe, specs, 0.7)
    out = ldm_golden.call_of(CONFIG)(pipe.unet, inputs)
    return {"case": "unet", "golden": "ldm_sd1", "tensors": specs, "strength": 0.7,
            "output": summary("output", nhwc(out), first=16)}


def run_case(name, tokenizer):
    """A run of text_to_image_golden.py with a LoRA at 0.7 on all of its networks."""
    xl = name.startswith("xl")
    case, made = runs.CASES[name], {}
    text_model, unet_of = runs.text_model, ldm_cases.unet
    texts = []

    def with_text(c):
        texts.append(text_model(c))
        return texts[-1]

    def finished(module, names):  # called when the U-Net has its weights
        fill(module, names)
        made["unet"] = module

    fill, runs.text_model, runs.ldm_golden.fill = ldm_golden.fill, with_text, finished
    encoded = runs.encoded

    def with_lora(tok, models, prompt, is_xl):
        if "specs" not in made:
            prefixes = ["text_encoder.", "text_encoder_2."] if xl else ["lora_te_"]
            build = dotted_lora if xl else kohya_lora
            made["specs"] = build(made["unet"], list(zip(prefixes, texts)))
            if xl:
                pipe = diffusers.StableDiffusionXLPipeline(
                    None, texts[0], texts[1], None, None, made["unet"],
                    runs.SCHEDULERS["ddim"][0]())
            else:
                pipe = diffusers.StableDiffusionPipeline(
                    None, texts[0], None, made["unet"], runs.SCHEDULERS["ddim"][0](), None, None,
                    requires_safety_checker=False)
            loaded(pipe, made["specs"], 0.7)
        return encoded(tok, models, prompt, is_xl)

    runs.encoded = with_lora
    try:
        out = runs.run(name, case, tokenizer)
    finally:
        runs.text_model, runs.ldm_golden.fill, runs.encoded = text_model, fill, encoded
    return {**out, "tensors": made["specs"], "strength": 0.7}


def main():
    out, tokenizer = runs.arguments(__doc__)
    peft_cases = [peft_case("peft", "to_q"), peft_case("peft_conv", "conv"),
                  peft_case("peft_rs", "ff", use_rslora=True),
                  peft_case("peft_bias", "ff", lora_bias=True),
                  peft_case("peft_dora", "ff", use_dora=True),
                  peft_case("peft_dora_conv", "conv", use_dora=True)]
    with torch.no_grad():
        kinds = [lycoris_case(c) for c in LYCORIS]
        kinds += [ia3_case("ff", True, 0.7), ia3_case("conv", False, 1), glora_old_case()]
        unet = unet_case()
        whole = [run_case("sd1_ddim", tokenizer), run_case("xl_euler", tokenizer)]
    versions = {n: importlib.metadata.version(n) for n in ("lycoris-lora", "peft")}
    write(out / "adapters.json", {
        "generator": {"python": platform.python_version(), "torch": torch.__version__,
                      "diffusers": diffusers.__version__, **versions,
                      "rule": "tools/golden/hashed_weights.py"},
        "config": CONFIG, "kinds": kinds + peft_cases, "unet": unet, "runs": whole})


if __name__ == "__main__":
    main()
