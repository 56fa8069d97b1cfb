"""ebb's kernels as the Hub's `kernels` library loads them, from a local folder and without a
network: get_local_kernel(), LOCAL_KERNELS for get_kernel(), and kernelize().

python hub.py [--tiny]
"""

import argparse
import os
import tempfile
from pathlib import Path

import torch

import ebb_kernels as ek
from compare import before_and_after, device_and_dtype
from ebb_kernels import hub

REPOSITORY = "ebb/ebb-kernels"


def redirected(kernels, folder):
    """What a program that asks the Hub for the repository gets."""
    os.environ["LOCAL_KERNELS"] = f"{REPOSITORY}={folder}"
    return kernels.get_kernel(REPOSITORY, version=hub.VERSION)


def kernelized(kernels, folder, device, dtype, tiny):
    """A layer that is marked, by the mapping of layers."""

    @kernels.use_kernel_forward_from_hub("RMSNorm")
    class Norm(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(width))
            self.variance_epsilon = 1e-6

        def forward(self, hidden_states):
            return torch.nn.functional.rms_norm(
                hidden_states, self.weight.shape, self.weight, self.variance_epsilon
            )

    width, rows = (64, 32) if tiny else (2048, 8192)
    model = torch.nn.Sequential(Norm(width)).to(device, dtype)
    x = torch.randn(rows, width, device=device, dtype=dtype)
    layer = kernels.LocalLayerRepository(folder, layer_name="RMSNorm")

    def change():
        with kernels.use_kernel_mapping({"RMSNorm": {device: layer}}):
            kernels.kernelize(model, mode=kernels.Mode.INFERENCE, device=device)
        return "kernelize: RMSNorm"

    def undo():
        del model[0].forward

    before_and_after(lambda: model(x), change, undo)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    tiny = parser.parse_args().tiny
    device, dtype = device_and_dtype(tiny)
    try:
        import kernels
    except ImportError:
        print("needs the Hub's library: pip install kernels")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for backend in hub.VARIANTS:
            print(hub.write(folder, backend).relative_to(folder))
        loaded = kernels.get_local_kernel(folder)
        x = torch.randn(4, 64, device=device, dtype=dtype)
        print(f"{loaded.__name__} is beside ebb_kernels, and equal:",
              torch.equal(loaded.rms_norm(x), ek.rms_norm(x)))  # fmt: skip
        print("LOCAL_KERNELS gives", redirected(kernels, folder).__name__)
        kernelized(kernels, folder, device, dtype, tiny)


if __name__ == "__main__":
    main()
