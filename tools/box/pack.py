#!/usr/bin/python3
"""Makes a checkpoint of matrices in 8 bits with a scale for each row, and all else in f16.

  pack.py IN.safetensors OUT.safetensors [GUIDANCE]

GUIDANCE is what suits it where nobody says another; the file says it (metadata ebb.guidance).
"""

import json
import os
import struct
import sys

import numpy as np

DTYPES = {"F32": np.float32, "F16": np.float16}


def read(path):
    """(name, f32 array) of each tensor in order, and the metadata."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    out = []
    for name, e in header.items():
        if e["dtype"] not in DTYPES:
            sys.exit(f"pack.py: {name} must be F32 or F16 ({e['dtype']})  {path}")
        begin, end = e["data_offsets"]
        numbers = np.frombuffer(data[begin:end], DTYPES[e["dtype"]]).reshape(e["shape"])
        out.append((name, numbers.astype(np.float32)))
    return out, metadata


def check_finite(name, given, stored, kind):
    """Ends the program at the first number that the file would not have as it is."""
    bad = np.flatnonzero(~np.isfinite(stored))
    if len(bad):
        sys.exit(f"pack.py: numbers must be finite in {kind} ({given.reshape(-1)[bad[0]]:g} is "
                 f"element {bad[0]} of {name}, {len(bad)} of {given.size} are not)")


def packed(name, x):
    """What the file has of a tensor: (name, dtype, array)."""
    if x.ndim < 2 or not name.endswith(".weight"):
        with np.errstate(over="ignore"):  # which is what is checked
            half = x.astype(np.float16)
        check_finite(name, x, half, "F16")
        return [(name, "F16", half)]
    check_finite(name, x, x, "F32")
    rows = x.reshape(len(x), -1)
    scale = (np.abs(rows).max(1) / 127).astype(np.float32)
    steps = np.where(scale > 0, scale, 1)[:, None]
    return [(name, "I8", np.round(rows / steps).astype(np.int8).reshape(x.shape)),
            (name + "_scale", "F32", scale)]


def write(path, tensors, metadata):
    header, at = {"__metadata__": metadata}, 0
    tensors = sorted(tensors, key=lambda t: -t[2].itemsize)  # so that all are aligned
    for name, dtype, x in tensors:
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, x in tensors:
            file.write(np.ascontiguousarray(x).tobytes())
    os.replace(path + ".part", path)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    tensors, metadata = read(sys.argv[1])
    if len(sys.argv) == 4:
        metadata = dict(sorted({**metadata, "ebb.guidance": f"{float(sys.argv[3]):g}"}.items()))
    out = [t for name, x in tensors for t in packed(name, x)]
    write(sys.argv[2], out, metadata)
    print(f"{os.path.getsize(sys.argv[2]) / 1e6:.1f} MB  {sys.argv[2]}")


if __name__ == "__main__":
    main()
