"""Golden files of upscalers: python upscaler_golden.py --out tests/golden.

Runs spandrel's RRDBNet and SRVGGNetCompact at small sizes on hashed weights and inputs, as
component_golden.py does. A weight is hashed by Real-ESRGAN's name; spandrel has those of the first
ESRGAN ("names").
"""

import argparse
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from component_golden import evaluate, fill, record_call  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from generate import write  # noqa: E402
from record import image, image_spec  # noqa: E402
from spandrel.architectures.Compact import Compact  # noqa: E402
from spandrel.architectures.ESRGAN import ESRGAN  # noqa: E402


def esrgan_name(name, blocks, doublings):
    conv = re.match(r"model\.1\.sub\.(\d+)\.RDB(\d)\.conv(\d)\.0\.(.*)", name)
    if conv:
        return "body.{}.rdb{}.conv{}.{}".format(*conv.groups())
    layer, rest = name.rsplit(".", 1)
    layers = {"model.0": "conv_first", f"model.1.sub.{blocks}": "conv_body",
              f"model.{3 * doublings + 2}": "conv_hr", f"model.{3 * doublings + 4}": "conv_last"}
    layers |= {f"model.{3 * i}": f"conv_up{i}" for i in range(1, doublings + 1)}
    return f"{layers[layer]}.{rest}"


def upscale_call(module, size):
    pixels = [2, *size, 3]

    def call(m, dtype):
        x = image("input.pixels", pixels).to(dtype)
        return {"pixels": m(x * 0.5 + 0.5) * 2 - 1}

    return record_call("upscale", {"pixels": image_spec("input.pixels", pixels)},
                       evaluate(module, call))


def esrgan_case(name, size, width, blocks, doublings, unshuffle):
    # spandrel has no option for the growth of dense blocks: 32
    module = ESRGAN(in_nc=3 * unshuffle ** 2, num_filters=width, num_blocks=blocks,
                    scale=2 ** doublings, shuffle_factor=unshuffle if unshuffle > 1 else None)
    fill(module, lambda n: esrgan_name(n, blocks, doublings))
    config = dict(width=width, blocks=blocks, doublings=doublings, unshuffle=unshuffle)
    return dict(case=name, model="esrgan", config=config, module=module,
                calls=[upscale_call(module, size)])


def compact_case(name, size, width, layers, scale):
    module = Compact(num_feat=width, num_conv=layers, upscale=scale)
    fill(module, lambda n: n)
    return dict(case=name, model="esrgan_compact",
                config=dict(width=width, layers=layers, scale=scale), module=module,
                calls=[upscale_call(module, size)])


def cases():
    yield esrgan_case("esrgan_x4", [9, 14], 16, 2, 2, 1)
    yield esrgan_case("esrgan_x2", [12, 16], 16, 1, 2, 2)
    yield esrgan_case("esrgan_x1", [16, 24], 8, 1, 2, 4)
    yield compact_case("esrgan_compact", [11, 13], 12, 3, 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"python": platform.python_version(), "torch": torch.__version__,
                "numpy": np.__version__, "spandrel": version("spandrel"),
                "rule": "tools/golden/hashed_weights.py"}
    for case in cases():
        module = case.pop("module")
        parameters = sum(p.numel() for p in module.parameters())
        names = {module.original_name(n): n for n, _ in module.named_parameters()}
        names = {old: new for old, new in names.items() if old != new}
        write(args.out / f"{case['case']}.json",
              {"generator": versions, **case, "parameters": parameters, "names": names})


if __name__ == "__main__":
    main()
