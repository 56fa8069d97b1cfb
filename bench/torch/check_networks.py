"""Checks networks.py against the golden vectors: python bench/torch/check_networks.py.

A baseline that computes something else is worthless, so outputs, losses and gradients of all
networks must agree with the reference values to float32 accuracy.
"""

import json
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/golden"), str(ROOT / "bench/torch")]
import components  # noqa: E402
import dit  # noqa: E402
import ldm  # noqa: E402
import networks  # noqa: E402
from hashed_weights import hashed_input, projections  # noqa: E402
from record import fill_hashed, image, nhwc  # noqa: E402


def distance(name, tensor, golden):
    """Relative difference of first values and projections from the golden summary."""
    flat = tensor.detach().double().reshape(-1)
    count = len(golden["first"])
    worst = (flat[:count] - torch.tensor(golden["first"], dtype=torch.float64)).abs().max().item()
    for a, b in zip(projections(name, flat.numpy()), golden["proj"]):
        worst = max(worst, abs(a - b))
    return worst / golden["l2"]


def check(case_name, network, memory_format):
    golden = json.loads((ROOT / f"tests/golden/{case_name}.json").read_text())
    inputs, c = golden["inputs"], golden["config"]
    net = fill_hashed(network(c)).to(memory_format=memory_format)
    x = image("input.x", inputs["x"]["shape"]).contiguous(memory_format=memory_format)
    if "t" in inputs:
        labels = [torch.tensor(inputs["y"]["values"])] if "y" in inputs else []
        out = net(x, torch.tensor(inputs["t"]["values"]), *labels)
    else:
        labels = torch.eye(c["label_dim"])[inputs["class_labels"]["values"]]
        augment = torch.from_numpy(
            hashed_input("input.augment_labels", inputs["augment_labels"]["shape"]))
        out = net(x, torch.tensor(inputs["noise_labels"]["values"]), labels, augment)
    loss = ((out - image("input.target", golden["output"]["shape"])) ** 2).mean()
    loss.backward()
    grads = {n: p.grad for n, p in net.named_parameters()}
    assert set(grads) == set(golden["gradients"]), "parameter names differ"
    errors = {"output": distance("output", nhwc(out), golden["output"])}
    for name, entry in golden["gradients"].items():
        assert list(grads[name].shape) == entry["shape"], name
        if entry["f64_rel_error"] < 1e-3:  # else its exact value is zero
            errors[name] = distance(name, grads[name], entry)
    worst = max(errors, key=errors.get)
    print(f"{case_name} {memory_format}: worst {errors[worst]:.2e} at {worst}")
    assert errors[worst] < 1e-4 and abs(loss.item() / golden["loss"]["value"] - 1) < 1e-5


def check_component(case_name, build, entry, output):
    """The baseline of one of a component's entry points, which gives one of its outputs."""
    golden = json.loads((ROOT / f"tests/golden/{case_name}.json").read_text())
    call = next(c for c in golden["calls"] if c["entry"] == entry)
    name, spec = next(iter(call["inputs"].items()))
    value = torch.tensor(spec["ids"]) if "ids" in spec else image(spec["hash"], spec["shape"])
    with torch.no_grad():
        out = nhwc(fill_hashed(build(golden["config"])).eval()(value))
    error = distance(f"{entry}.{output}", out, call["outputs"][output])
    print(f"{case_name} {entry}: {error:.2e}")
    assert error < 1e-5


def value(name, spec):
    """An input of a golden file of tests/golden/ldm."""
    if "values" in spec:
        return torch.tensor(spec["values"]).reshape(spec["shape"])
    if "layout" in spec:
        return image(spec["hash"], spec["shape"])
    return torch.from_numpy(hashed_input(spec["hash"], spec["shape"]))


def check_ldm(case_name, memory_format):
    golden = json.loads((ROOT / f"tests/golden/ldm/{case_name}.json").read_text())
    net = fill_hashed(ldm.LdmUNet(golden["config"])).to(memory_format=memory_format)
    ours = {n: list(p.shape) for n, p in net.named_parameters()}
    assert ours == {n: shape for n, _, shape in golden["names"]}, "parameter names differ"
    inputs = {name: value(name, spec) for name, spec in golden["inputs"].items()}
    x = inputs.pop("x").contiguous(memory_format=memory_format)
    for fused in (False, True):
        if fused:
            net.fuse()
        with torch.no_grad():
            out = net(x, inputs["noise"], **{k: v for k, v in inputs.items() if k != "noise"})
        error = distance("output", nhwc(out), golden["output"])
        print(f"{case_name} {memory_format}{' fused' if fused else ''}: {error:.2e}")
        assert error < 1e-4


if __name__ == "__main__":
    for layout in (torch.contiguous_format, torch.channels_last):
        check("songunet_ddpmpp", networks.SongUNet, layout)
        check("adm_plain", networks.AdmUNet, layout)
        check("adm_full", networks.AdmUNet, layout)
        check("dit_p2", dit.DiT, layout)
        for path in sorted((ROOT / "tests/golden/ldm").glob("*.json")):
            if "config" in json.loads(path.read_text()):
                check_ldm(path.stem, layout)
    for name in ("autoencoder_kl", "autoencoder_kl16"):
        check_component(name, components.Decode, "decode", "pixels")
        check_component(name, components.Encode, "encode", "mean")
    for name in ("clip_quick_gelu", "clip_gelu"):
        check_component(name, components.ClipText, "encode", "states.1.normed")
