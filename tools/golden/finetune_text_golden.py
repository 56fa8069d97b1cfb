"""Golden training steps of small U-Nets of Stable Diffusion 1 and XL with their text encoders.

    python tools/golden/finetune_text_golden.py --out tests/golden

As finetune_golden.py, with transformers' CLIP text models in the loss, which reads tokens. They
learn at TEXT_RATE times the learning rate. Weights are hashed by our names, which have the prefix
of the network; a parameter without a gradient is one that the U-Net does not read, and is left out.
"""

import argparse
import platform
from pathlib import Path

import diffusers
import torch
import torch.nn.utils.parametrize
import transformers

import finetune_golden as base
import ldm_cases
import ldm_golden
from component_golden import clip_config, clip_tokens
from generate import write
from hashed_weights import hashed_parameter

TEXT_RATE = 0.25
PREFIXES = ["text_encoder.", "text_encoder_2."]
CASES = {
    "sd1": dict(unet="ldm_sd1", changes={}, layer=1, texts=[dict(layers=2, projection=0)]),
    "xl": dict(unet="ldm_sdxl_lcm", changes=dict(guidance_channels=0), layer=2,
               texts=[dict(layers=2, projection=0),
                      dict(layers=3, projection=32, activation="gelu")]),
}
SIZES = [8.0, 16.0, 0.0, 0.0, 8.0, 16.0]


def text_model(c, prefix):
    end = c["vocabulary"] - 1
    config = transformers.CLIPTextConfig(
        vocab_size=c["vocabulary"], hidden_size=c["width"], intermediate_size=c["hidden"],
        projection_dim=c["projection"] or 8, num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"], max_position_embeddings=c["positions"],
        hidden_act=c["activation"], bos_token_id=end - 1, eos_token_id=end, pad_token_id=end,
        attn_implementation="sdpa")
    module = transformers.CLIPTextModelWithProjection(config).eval()
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.copy_(torch.from_numpy(hashed_parameter(prefix + name, p.shape)))
    return module.double()


class Networks:
    """A U-Net with its text encoders, and all parameters by our names."""

    def __init__(self, case):
        self.case = case
        self.config = {**ldm_cases.DEFAULTS, **ldm_cases.CASES[case["unet"]], **case["changes"]}
        self.unet = ldm_cases.unet(self.config)
        self.names = ldm_cases.names_of(self.unet, self.config)
        ldm_golden.fill(self.unet, self.names)
        self.unet.double().requires_grad_(True)
        self.text_configs = [clip_config(**t) for t in case["texts"]]
        self.texts = [text_model(c, p) for c, p in zip(self.text_configs, PREFIXES)]
        self.tokens, self.ends = clip_tokens(self.text_configs[0], 77)
        self.tokens[1] = self.tokens[1][:76] + [self.text_configs[0]["vocabulary"] - 1]

    def params(self):
        originals = {name: original for original, name, _ in self.names}
        out = {originals[n]: p for n, p in self.unet.named_parameters()}
        for text, prefix in zip(self.texts, PREFIXES):
            out.update({prefix + n: p for n, p in text.named_parameters()})
        return out

    def loss(self, inputs):
        bar = base.alphas_bar(False)[base.TIMESTEPS].view(-1, 1, 1, 1)
        x = bar.sqrt() * inputs["images"] + (1 - bar).sqrt() * inputs["noise"]
        states, added = [], None
        for text in self.texts:
            r = text(input_ids=torch.tensor(self.tokens), output_hidden_states=True)
            state = r.hidden_states[-self.case["layer"]]
            if self.case["layer"] == 1:
                state = text.text_model.final_layer_norm(state)
            states.append(state)
            added = dict(text_embeds=r.text_embeds,
                         time_ids=torch.tensor([SIZES] * base.BATCH).double())
        if len(self.texts) == 1:
            added = None
        f = self.unet(x, torch.tensor(base.TIMESTEPS), encoder_hidden_states=torch.cat(states, 2),
                      added_cond_kwargs=added).sample
        return ((f - inputs["noise"]) ** 2).mean()


def is_text(name):
    return any(name.removeprefix("adapter.").startswith(p) for p in PREFIXES)


def rate_of(name):
    return TEXT_RATE if is_text(name) else 1.0


def read(networks, inputs, params):
    """Those of the parameters that the loss depends on."""
    networks.loss(inputs).backward()
    out = {n: p for n, p in params.items() if p.grad is not None}
    for p in params.values():
        p.grad = None
    return out


def with_adapter(kind, networks):
    """Factors of the transformers of the U-Net and of all layers of the encoders."""
    out = base.with_adapter(kind, networks.unet, networks.names)
    for text, prefix in zip(networks.texts, PREFIXES):
        text.requires_grad_(False)
        for name, p in list(text.named_parameters()):
            if not name.endswith(".weight") or p.dim() < 2 or "encoder.layers" not in name:
                continue
            stem, layer = f"adapter.{prefix}{name[:-7]}", text.get_submodule(name[:-7])
            factors = {}
            for role, size in base.factor_shapes(kind, list(p.shape)).items():
                value = torch.from_numpy(hashed_parameter(f"{stem}.{role}", size)).double()
                factors[role] = out[f"{stem}.{role}"] = torch.nn.Parameter(value)
            if kind == "lora":
                base.add_low_rank(layer, factors["down"], factors["up"])
            else:
                torch.nn.utils.parametrize.register_parametrization(
                    layer, "weight", base.Change(kind, factors))
    return out


def records(case, inputs):
    networks = Networks(case)
    params = read(networks, inputs, networks.params())
    out = {"config": networks.config, "texts": networks.text_configs, "layer": case["layer"],
           "tokens": networks.tokens, "ends": networks.ends, "sizes": SIZES,
           "whole": base.trained(lambda: networks.loss(inputs), params, rate_of)}
    for kind in ["lora", "loha", "lokr"] if len(networks.texts) == 1 else ["lora"]:
        adapted = Networks(case)
        factors = read(adapted, inputs, with_adapter(kind, adapted))
        out[kind] = base.trained(lambda: adapted.loss(inputs), factors, rate_of)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    inputs = {"images": base.image("input.images"), "noise": base.image("input.noise")}
    write(out / "finetune_text.json", {
        "generator": "tools/golden/finetune_text_golden.py",
        "versions": {"torch": torch.__version__, "diffusers": diffusers.__version__,
                     "transformers": transformers.__version__,
                     "python": platform.python_version()},
        "shape": [base.BATCH, base.HEIGHT, base.WIDTH, 4], "timesteps": base.TIMESTEPS,
        "rank": base.RANK, "alpha": base.ALPHA, "text_rate": TEXT_RATE,
        "adamw": {"lr": base.ADAMW["lr"], "eps": base.ADAMW["eps"], "beta1": 0.9, "beta2": 0.999,
                  "weight_decay": base.ADAMW["weight_decay"]},
        "cases": {name: records(case, inputs) for name, case in CASES.items()}})


if __name__ == "__main__":
    main()
