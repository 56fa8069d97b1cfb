#!/usr/bin/env python3
"""Makes the weights file of `ebb eval --features inception=FILE` from pytorch-fid's.

    python tools/inception_weights.py pt_inception-2015-12-05-6726825d.pth inception.safetensors

The first file is at https://github.com/mseitzer/pytorch-fid/releases (fid_weights). Needs torch.
"""

import argparse
import json
import struct

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pth")
    parser.add_argument("safetensors")
    args = parser.parse_args()
    weights = torch.load(args.pth, map_location="cpu", weights_only=True)
    header, data, at = {}, [], 0
    for name, tensor in weights.items():
        if name.startswith("fc.") or not tensor.is_floating_point():
            continue  # the classifier's last layer, counters
        data.append(tensor.to(torch.float32).contiguous().numpy().astype("<f4").tobytes())
        end = at + len(data[-1])
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(args.safetensors, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    print(f"{len(header)} tensors, {at / 1e6:.0f} MB: {args.safetensors}")


if __name__ == "__main__":
    main()
