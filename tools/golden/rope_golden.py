"""Writes tests/golden/rope.json: rotary position embeddings from the public formulas, in double.

    python rope_golden.py > tests/golden/rope.json

- llama: transformers, modeling_llama.py: LlamaRotaryEmbedding (inverse frequencies
  theta^(-2 i / D), angles twice side by side), apply_rotary_pos_emb (q cos + rotate_half(q) sin).
- flux: diffusers, embeddings.py: get_1d_rotary_pos_embed for each axis, side by side
  (FluxPosEmbed), and apply_rotary_emb on adjacent pairs, here as a product of complex numbers.
Only the standard library is needed.
"""

import cmath
import json
import math


def numbers(count, step):
    """Different for every element; exact in f32."""
    return [round(math.sin(step * (i + 1)) * 256) / 256 for i in range(count)]


def rows(values, width):
    return [values[i:i + width] for i in range(0, len(values), width)]


def rotate_half(q):
    half = len(q) // 2
    return [-v for v in q[half:]] + q[:half]


def llama(x, positions, heads, width, theta):
    inverse_frequencies = [1.0 / theta ** (i / width) for i in range(0, width, 2)]
    out = []
    for token, position in zip(rows(x, heads * width), positions):
        angles = [position * f for f in inverse_frequencies] * 2
        for q in rows(token, width):
            out += [v * math.cos(a) + r * math.sin(a)
                    for v, r, a in zip(q, rotate_half(q), angles)]
    return out


def flux(x, positions, heads, axes, thetas):
    out = []
    for token, position in zip(rows(x, heads * sum(axes)), positions):
        turns = [cmath.exp(1j * p / theta ** (i / width))
                 for p, width, theta in zip(position, axes, thetas) for i in range(0, width, 2)]
        for q in rows(token, sum(axes)):
            for pair, turn in zip(rows(q, 2), turns):
                z = complex(*pair) * turn
                out += [z.real, z.imag]
    return out


def case(values, **settings):
    return {**settings, "y": [float(f"{v:.12g}") for v in values]}


def main():
    x = numbers(3 * 2 * 8, 0.7)
    cases = {
        "x": x,
        "heads": 2,
        "llama": case(llama(x, [0, 1, 131], 2, 8, 5e5), positions=[0, 1, 131], axes=[8],
                      theta=[5e5]),
        "flux": case(flux(x, [[0, 0, 0], [0, 3, 5], [2, 63, 40]], 2, [2, 4, 2], [1e4, 1e4, 2e3]),
                     positions=[0, 0, 0, 0, 3, 5, 2, 63, 40], axes=[2, 4, 2],
                     theta=[1e4, 1e4, 2e3]),
    }
    print("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items()) + "}")


if __name__ == "__main__":
    main()
