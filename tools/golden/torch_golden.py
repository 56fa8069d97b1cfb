"""Small files of torch.save for tests/golden/torch, each with its tensors as safetensors beside it.

    venv/bin/pip install torch==2.11.0 safetensors numpy
    venv/bin/python tools/golden/torch_golden.py --out tests/golden/torch

Nothing in them is random. `kinds` has every dtype, views and shared storages, in torch's zip format
and in the one before it, by each protocol of pickle.
"""

import argparse
import collections
import sys
import types
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file


def module_with(name, **members):
    """A module that is not installed: what training programs leave in their files."""
    parts = name.split(".")
    for i in range(1, len(parts)):
        sys.modules[".".join(parts[:i])] = types.ModuleType(".".join(parts[:i]))
    module = types.ModuleType(name)
    for key, value in members.items():
        value.__module__ = name
        setattr(module, key, value)
    sys.modules[name] = module
    return module


class Callback:
    def __init__(self):
        self.best = np.float64(0.25)
        self.path = "last.ckpt"


class ListConfig:
    def __reduce__(self):
        return (ListConfig, (), {"_content": [1, 2]})


def kinds():
    base = torch.arange(24, dtype=torch.float32) / 8 - 1
    out = collections.OrderedDict()
    out["f32"] = base.reshape(4, 6)
    out["f32.transposed"] = base.reshape(4, 6).t()
    out["f32.columns"] = base.reshape(4, 6)[:, 1:4]
    out["f32.every_second"] = base[1::2]
    out["f32.permuted"] = base.reshape(2, 3, 4).permute(2, 0, 1)
    out["f32.parameter"] = torch.nn.Parameter(base[:5].clone())
    out["f32.shared"] = base[6:12].reshape(2, 3)
    out["f32.scalar"] = torch.tensor(3.5)
    out["f32.empty"] = torch.empty(0, 3)
    out["f16"] = (base[:7] * 1.1).half()
    out["bf16"] = (base[:7] * 1.1).bfloat16()
    out["f64"] = base[:3].double() / 3
    out["i64"] = torch.arange(77).expand((1, -1))
    out["i32"] = torch.arange(3, dtype=torch.int32)
    out["u8"] = torch.arange(4, dtype=torch.uint8)
    out["bool"] = torch.tensor([True, False, True])
    return out


def fp8():
    every = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    return {"e4m3.weight": every.view(torch.float8_e4m3fn),
            "e5m2.weight": every.view(torch.float8_e5m2),
            "e4m3.turned": every.view(torch.float8_e4m3fn).t()}


def lightning(weights):
    Callback.__qualname__ = Callback.__name__ = "ModelCheckpoint"
    module_with("pytorch_lightning.callbacks.model_checkpoint", ModelCheckpoint=Callback)
    module_with("omegaconf.listconfig", ListConfig=ListConfig)
    return {"epoch": 3, "global_step": 840000, "pytorch-lightning_version": "1.4.2",
            "state_dict": weights, "callbacks": {"checkpoint": Callback()},
            "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}}],
            "hyper_parameters": {"lr": 1e-4, "mult": ListConfig()}, "lr_schedulers": []}


def loads_as(t):
    if t.dtype == torch.float64:
        return t.float()
    if t.dtype == torch.bool:
        return t.to(torch.uint8)
    return t.bfloat16() if t.dtype in (torch.float8_e4m3fn, torch.float8_e5m2) else t


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    def beside(name, tensors):
        save_file({k: loads_as(v.detach()).contiguous().clone() for k, v in tensors.items()},
                  out / f"{name}.safetensors")

    weights = kinds()
    beside("kinds", weights)
    torch.save(weights, out / "kinds_zip.pt")
    torch.save(weights, out / "kinds_legacy.pt", _use_new_zipfile_serialization=False)
    for protocol in (3, 4, 5):
        torch.save(weights, out / f"kinds_zip{protocol}.pt", pickle_protocol=protocol)
    torch.save(weights, out / "kinds_legacy4.pt", pickle_protocol=4,
               _use_new_zipfile_serialization=False)
    beside("fp8", fp8())
    torch.save(fp8(), out / "fp8_zip.pt")
    torch.save(fp8(), out / "fp8_legacy.pt", _use_new_zipfile_serialization=False)
    few = {k: weights[k] for k in ("f32", "f16", "f32.transposed")}
    beside("few", few)
    torch.save(lightning(few), out / "few_lightning.ckpt")
    torch.save(lightning(few), out / "few_lightning_legacy.ckpt",
               _use_new_zipfile_serialization=False)
    vectors = torch.arange(2 * 768, dtype=torch.float32).reshape(2, 768).half() / 1024
    save_file({"x": vectors}, out / "embedding.safetensors")
    torch.save({"string_to_token": {"*": 265}, "string_to_param": {"*": vectors}, "name": "ink",
                "step": 100, "sd_checkpoint": None, "sd_checkpoint_name": None},
               out / "embedding_a1111.pt")
    torch.save({"string_to_token": {"*": 265},
                "string_to_param": torch.nn.ParameterDict({"*": torch.nn.Parameter(vectors)})},
               out / "embedding_original.pt")
    torch.save({"<ink>": vectors}, out / "embedding_diffusers.bin")
    torch.save(vectors, out / "embedding_tensor.bin")


main()
