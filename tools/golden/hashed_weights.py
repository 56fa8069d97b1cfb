"""Hashed tensors: every weight and input of the golden tests is a function of (name, index).

No weights are stored. A tensor is filled element by element from its name and the flat index, so
that any language can produce the same bits. The rule, complete:

  1. name  : the ORIGINAL checkpoint name of the tensor as UTF-8 bytes, e.g.
             "input_blocks.1.0.in_layers.2.weight"; inputs are named "input.x", "input.target", ...
  2. index : the flat row-major index in the ORIGINAL layout: torch's, so conv [O,I,KH,KW],
             transposed conv [I,O,KH,KW], linear [O,I], embedding [rows, width].
             Image inputs and outputs are the exception: they are hashed in NHWC order.
  3. seed  = FNV-1a 64 of the name:
               seed = 0xCBF29CE484222325; for each byte b: seed = (seed ^ b) * 0x00000100000001B3
  4. z     = seed ^ index                        (XOR first, then one splitmix64 step)
     z     = z + 0x9E3779B97F4A7C15
     z     = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
     z     = (z ^ (z >> 27)) * 0x94D049BB133111EB
     h     = z ^ (z >> 31)                       (all arithmetic modulo 2^64)
  5. u     = (h >> 40) * 2^-24                   (top 24 bits, in [0,1))
     value = 2u - 1                              (in [-1,1), exact in float32)
  6. scale, by shape and name (float64, then ONE rounding to float32):
       two or more dimensions      : value * sqrt(3 / fan_in), fan_in = product(shape[1:])
       one dimension, "*.weight"   : 1 + 0.1 * value           (norm weights)
       one dimension, other        : 0.1 * value               (biases)
       NCSN++ "map_noise.freqs"    : 16 * value
       other buffers               : not hashed, computed by the model (resample_filter, pos_embed)
       inputs                      : value * sqrt(3)           (variance 1)
  7. signs of the projections: for the vector k of tensor `name` the tensor name is name + "#p<k>"
     and the sign is +1 where value >= 0, that is where the top bit of h is set, else -1.

Check values (run this file to see that they hold):
  fnv1a64("a") = 0xAF63DC4C8601EC8C, fnv1a64("input.x") = 0x8108462D5960CEF5,
  value("input.x", 0..3) = 0.29778385162353516, -0.748854398727417, 0.08363604545593262,
                           -0.5153181552886963
"""

import numpy as np

MASK = (1 << 64) - 1


def fnv1a64(name):
    """FNV-1a hash of the UTF-8 bytes of `name`, as a Python int below 2^64."""
    h = 0xCBF29CE484222325
    for b in name.encode("utf-8"):
        h = ((h ^ b) * 0x00000100000001B3) & MASK
    return h


def hash_bits(name, count):
    """The 64 hash bits of the elements 0..count-1 of tensor `name`, uint64 [count]."""
    z = np.arange(count, dtype=np.uint64) ^ np.uint64(fnv1a64(name))
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hash_values(name, count):
    """Uniform values in [-1,1), float64 [count]."""
    u = (hash_bits(name, count) >> np.uint64(40)).astype(np.float64) * 2.0**-24
    return 2.0 * u - 1.0


def hash_signs(name, count):
    """+1 or -1, float64 [count]: the signs of `hash_values`."""
    return np.where(hash_values(name, count) >= 0.0, 1.0, -1.0)


def hashed_parameter(name, shape):
    """A weight tensor by rule 6, float32 of `shape`."""
    shape = tuple(int(s) for s in shape)
    v = hash_values(name, int(np.prod(shape)))
    if name.endswith("map_noise.freqs"):
        v = 16.0 * v
    elif len(shape) >= 2:
        v = v * np.sqrt(3.0 / np.prod(shape[1:]))
    elif name.endswith(".weight"):
        v = 1.0 + 0.1 * v
    else:
        v = 0.1 * v
    return v.astype(np.float32).reshape(shape)


def hashed_input(name, shape):
    """An input tensor of variance 1, float32 of `shape` (images: give and get NHWC)."""
    v = hash_values(name, int(np.prod(shape))) * np.sqrt(3.0)
    return v.astype(np.float32).reshape(shape)


def projections(name, flat, count=4):
    """Dot products of the float64 vector `flat` with the sign vectors of `name`, list of floats."""
    flat = np.asarray(flat, dtype=np.float64).reshape(-1)
    return [float(hash_signs(f"{name}#p{k}", flat.size) @ flat) for k in range(count)]


if __name__ == "__main__":
    assert fnv1a64("a") == 0xAF63DC4C8601EC8C and fnv1a64("input.x") == 0x8108462D5960CEF5
    want = [0.29778385162353516, -0.748854398727417, 0.08363604545593262, -0.5153181552886963]
    assert hash_values("input.x", 4).tolist() == want
    print("hashed_weights: ok")
