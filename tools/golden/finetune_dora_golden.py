"""Golden training steps of decomposed adapters (DoRA, Liu et al. 2024, arXiv:2402.09353).

    python tools/golden/finetune_dora_golden.py --out tests/golden

As finetune_golden.py and finetune_text_golden.py, with PEFT's own layers (use_dora) of linear
layers, 1x1 and 3x3 convolutions and text encoders; of LoHa and LoKr, which PEFT does not decompose,
by the formula with the lengths as constants of the gradient, as PEFT has them. Magnitudes are the
lengths of the weights' rows, each times 1 + a hashed number, and do not decay.
"""

import argparse
import platform
from pathlib import Path

import diffusers
import peft
import torch
import torch.nn.utils.parametrize

import finetune_golden as base
import finetune_text_golden as text
from generate import write
from hashed_weights import hashed_input, hashed_parameter

CASES = {
    "dora": dict(kind="lora", target="attentions."),
    "filters": dict(kind="lora", target="resnets."),
    "loha": dict(kind="loha", target="attentions."),
    "lokr": dict(kind="lokr", target="attentions."),
}


def magnitude(stem, weight):
    """f64 [rows]; computed in f32, as ours is."""
    lengths = weight.detach().flatten(1).norm(dim=1).float()
    more = torch.from_numpy(hashed_parameter(f"{stem}.magnitude", lengths.shape))
    return (lengths * (1 + more)).double()


def hashed(stem, role, size):
    return torch.from_numpy(hashed_parameter(f"{stem}.{role}", size)).double()


class Decomposed(base.Change):
    def __init__(self, kind, factors, start):
        super().__init__(kind, factors)
        self.magnitude = torch.nn.Parameter(start)

    def forward(self, weight):
        changed = super().forward(weight)
        rows = [-1] + [1] * (weight.dim() - 1)
        lengths = changed.detach().flatten(1).norm(dim=1)
        return changed * (self.magnitude / lengths).view(rows)


def decompose(layer, kind, stem):
    """Adds factors to a layer by the formula; returns them by name."""
    weight = layer.weight
    factors = {role: torch.nn.Parameter(hashed(stem, role, size))
               for role, size in base.factor_shapes(kind, list(weight.shape)).items()}
    change = Decomposed(kind, factors, magnitude(stem, weight))
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", change)
    out = {f"{stem}.{role}": p for role, p in factors.items()}
    out[f"{stem}.magnitude"] = change.magnitude
    return out


def add_peft(network, stems):
    """PEFT's layers; `stems`: our names by those of the network's layers. Returns all factors."""
    weights = {n: network.get_submodule(n).weight.detach().clone() for n in stems}
    peft.inject_adapter_in_model(
        peft.LoraConfig(r=base.RANK, lora_alpha=base.ALPHA, target_modules=list(stems),
                        use_dora=True), network)
    network.double()
    out = {}
    for name, stem in stems.items():
        layer = network.get_submodule(name)
        values = {"down": layer.lora_A["default"], "up": layer.lora_B["default"]}
        for role, module in values.items():
            p = module.weight
            p.data = hashed(stem, role, list(p.shape))
            out[f"{stem}.{role}"] = p
        p = layer.lora_magnitude_vector["default"].weight
        start = weights[name].flatten(1).norm(dim=1)
        assert torch.allclose(p.detach().flatten(), start, rtol=1e-5), "begins as the lengths"
        p.data = magnitude(stem, weights[name]).reshape(p.shape)
        out[f"{stem}.magnitude"] = p
    return out


def layers_of(names, target):
    """Our names of the layers by diffusers'."""
    return {name[:-7]: f"adapter.{original[:-7]}" for original, name, shape in names
            if name.endswith(".weight") and len(shape) >= 2 and target in name}


def decay_of(name):
    return 0.0 if name.endswith(".magnitude") else base.ADAMW["weight_decay"]


def of_unet(case, inputs):
    _, unet, names = base.network()
    unet.requires_grad_(False)
    stems = layers_of(names, case["target"])
    if case["kind"] == "lora":
        params = add_peft(unet, stems)
    else:
        params = {}
        for name, stem in stems.items():
            params.update(decompose(unet.get_submodule(name), case["kind"], stem))
    return {**case, **base.trained(lambda: base.loss_of(unet, base.CASES["eps"], inputs), params,
                                   decay_of=decay_of)}


def of_texts(inputs):
    """All layers of the transformers of the U-Net and of the encoder of Stable Diffusion 1."""
    networks = text.Networks(text.CASES["sd1"])
    networks.unet.requires_grad_(False)
    params = add_peft(networks.unet, layers_of(networks.names, "attentions."))
    for encoder, prefix in zip(networks.texts, text.PREFIXES):
        encoder.requires_grad_(False)
        stems = {n[:-7]: f"adapter.{prefix}{n[:-7]}" for n, p in encoder.named_parameters()
                 if n.endswith(".weight") and p.dim() >= 2 and "encoder.layers" in n}
        params.update(add_peft(encoder, stems))
    params = text.read(networks, inputs, params)
    return base.trained(lambda: networks.loss(inputs), params, text.rate_of, decay_of)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    inputs = {"images": base.image("input.images"), "noise": base.image("input.noise")}
    c, _, _ = base.network()
    inputs["text"] = torch.from_numpy(
        hashed_input("input.text", [base.BATCH, base.TOKENS, c["context"]])).double()
    cases = {name: of_unet(case, inputs) for name, case in CASES.items()}
    cases["texts"] = of_texts(inputs)
    write(out / "finetune_dora.json", {
        "generator": "tools/golden/finetune_dora_golden.py",
        "versions": {"torch": torch.__version__, "diffusers": diffusers.__version__,
                     "peft": peft.__version__, "python": platform.python_version()},
        "cases": cases})


if __name__ == "__main__":
    main()
