"""Writes tests/golden/inception.json: python inception_golden.py --out tests/golden.

Features of the FID Inception network of pytorch-fid with hashed weights, FID by pytorch-fid and KID
by torch-fidelity, on pictures that are hashed, too. Needs

    venv/bin/pip install torch==2.11.0 torchvision==0.26.0 pytorch-fid==0.3.0 torch-fidelity==0.4.0

The real weights are not needed: the network is the same. Convolutions have the hashed weight rule
(hashed_weights.py); so have gains and biases of the norms. running_mean is 0.1 v and running_var
0.5 + 0.1 v, v in [-1,1) of the same rule: gains near sqrt(2) keep the signal through the ReLUs.
"""

import argparse
import json
import platform
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytorch_fid
import torch
import torch_fidelity
import torchvision
from pytorch_fid import fid_score, inception
from torch_fidelity.metric_kid import kernel_mmd

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hashed_weights import hash_values, hashed_parameter  # noqa: E402
from record import rounded, summary  # noqa: E402

# name: images, height, width, side of the squares of one colour
PICTURES = {"fine": (12, 24, 20, 1), "coarse": (10, 24, 20, 4), "large": (2, 330, 310, 15)}


def pictures(name):
    """8-bit images [N,3,H,W]: a colour floor(128 (v + 1)) a square, hashed in NHWC order."""
    n, h, w, side = PICTURES[name]
    shape = (n, h // side + 1, w // side + 1, 3)
    colours = np.floor(128 * (hash_values(f"pictures.{name}", int(np.prod(shape))) + 1))
    y, x = np.arange(h) // side, np.arange(w) // side
    return colours.reshape(shape)[:, y][:, :, x].transpose(0, 3, 1, 2).astype(np.uint8)


def hashed_tensor(name, shape):
    if name.endswith("running_var"):
        return 0.5 + 0.1 * hash_values(name, int(np.prod(shape))).reshape(shape)
    return hashed_parameter(name, shape)


def network():
    """pytorch-fid's network. What it would download are the hashed weights."""
    def weights(*_, **__):
        with mock.patch.object(inception, "load_state_dict_from_url", lambda *_, **__: {}), \
             mock.patch.object(torch.nn.Module, "load_state_dict", lambda *_, **__: None):
            names = inception.fid_inception_v3().state_dict()
        return {k: v if k.endswith("num_batches_tracked") else
                torch.from_numpy(np.asarray(hashed_tensor(k, tuple(v.shape)), dtype=np.float32))
                for k, v in names.items()}

    with mock.patch.object(inception, "load_state_dict_from_url", weights):
        return inception.InceptionV3().eval()


def features(net, images, dtype):
    """[N,2048] as fid_score computes them: of images in [0,1], as ToTensor makes them."""
    x = torch.from_numpy(images).to(torch.float32).div(255).to(dtype)
    with torch.no_grad():
        return torch.cat([net.to(dtype)(part)[0][:, :, 0, 0] for part in x.split(4)])


def figures(a, b):
    """FID and KID (all images as one subset, as many of either side) of float features [N,D]."""
    fid = fid_score.calculate_frechet_distance(
        a.mean(axis=0), np.cov(a, rowvar=False), b.mean(axis=0), np.cov(b, rowvar=False))
    n = min(len(a), len(b))
    options = dict(kid_kernel="poly", kid_kernel_poly_degree=3, kid_kernel_poly_gamma=None,
                   kid_kernel_poly_coef0=1)
    return {"fid": rounded(fid), "kid": rounded(kernel_mmd(a[:n], b[:n], **options))}


def plain_features(name):
    """[400,64] with correlated columns: of full rank, unlike features of few images."""
    v = hash_values(f"plain.{name}", 400 * 64).reshape(400, 64)
    out = v + 0.5 * np.roll(v, -1, axis=1)
    return (1.2 * out + 0.1 if name == "b" else out).astype(np.float32).astype(np.float64)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    net = network()
    exact, single = {}, {}
    for name in PICTURES:
        single[name] = features(net, pictures(name), torch.float32)
        exact[name] = features(net, pictures(name), torch.float64)
    out = {
        "generator": {
            "python": platform.python_version(), "torch": torch.__version__,
            "torchvision": torchvision.__version__, "numpy": np.__version__,
            "pytorch-fid": pytorch_fid.__version__, "torch-fidelity": torch_fidelity.__version__,
            "rule": "tools/golden/inception_golden.py"},
        "pictures": {k: dict(zip(("n", "height", "width", "square"), v))
                     for k, v in PICTURES.items()},
        "features": {k: summary(f"features.{k}", exact[k], single[k], first=32) for k in exact},
        "fine against coarse": figures(exact["fine"].numpy(), exact["coarse"].numpy()),
        "plain": figures(plain_features("a"), plain_features("b")),
    }
    rows = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in out.items())
    (args.out / "inception.json").write_text("{\n" + rows + "\n}\n")


if __name__ == "__main__":
    main()
