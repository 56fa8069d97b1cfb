#!/usr/bin/env python3
"""A model of the time of a training step on R GPUs, fitted to bench/results/ranks.jsonl, and what
it predicts for more of them.

    python bench/ranks_model.py

    t(R) = t(1) - s U (1 - 1/R) + V(R) / B + L log2 R

t(1) is the step on one GPU; U the update of weights, moments and average, which ranks that keep
parts (s = 1) divide: nine passes over the weights' f32 bytes P at the bandwidth of device memory;
V(R) what a rank sends (docs/many-gpus.md, What is split); B how much of it a second of exchange
that nothing hides would move, and L what collectives cost besides. B and L are fitted by least
squares of relative errors. Between hosts a GPU has HOST_LINK / B of the bandwidth, if that is less.
Prints the fit, its errors, and the predictions, as tables in Markdown.
"""

import argparse
import json
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEMORY = 4.0e12  # bytes a second of an H200, as copies reach
HOST = 8         # GPUs of a host
HOST_LINK = HOST * 45e9  # bytes a second between hosts: 400 Gb/s a GPU, nine tenths of it
# Weights in millions, and milliseconds of a step on one H200 for the networks that were not
# trained: three evaluations' time, to which the update comes. SDXL: 4 images of 1024x1024, an
# evaluation of 2 takes 27.2 ms (bench/results/h200.md); FLUX.1: one image of 1024x1024, 4 + 8 of
# its 57 blocks take 28.7 ms (docs/python.md).
NETWORKS = {"adm64": (295.9, None), "dit_xl2": (674.8, None),
            "SDXL, 4 images": (2567, 3 * 2 * 27.2), "FLUX.1, 1 image": (11900, 3 * 28.7 * 57 / 12)}
SIDES = {"none": (2, 0), "optimizer": (1.5, 1), "weights": (2, 1)}  # V over P (R-1)/R; s


MILLIONS = {name: millions for name, (millions, _) in NETWORKS.items()} | {"unet64": 22.08}


def weights_bytes(network):
    return MILLIONS[network] * 1e6 * 4


def update(network):
    return 9 * weights_bytes(network) / MEMORY


def sent(network, side, ranks):
    return SIDES[side][0] * weights_bytes(network) * (ranks - 1) / ranks


def saved(network, side, ranks):
    """Seconds of the update that other ranks make."""
    return SIDES[side][1] * update(network) * (1 - 1 / ranks)


def measured():
    """[(network, side, ranks, seconds on one, seconds)] of the lines, each with its machine's own
    time on one GPU."""
    lines = [json.loads(line) for line in (ROOT / "bench/results/ranks.jsonl").open()]
    # Over NCCL: copies were measured on two GPUs alone, which do not part B from L.
    lines = [line for line in lines
             if line["bench"] == "ranks" and line.get("link", "nccl") == "nccl"]
    one = {(line["case"], line.get("machine")): line["ms"] for line in lines
           if line["side"] == "ebb" and line["gpus"] == 1}
    return [(line["case"], line["side"].split(", ")[1], line["gpus"],
             one[line["case"], line.get("machine")] / 1e3, line["ms"] / 1e3)
            for line in lines if line["side"].startswith("ebb, ")]


def fit(points):
    """(1 / B, L) of the least sum of squared relative errors."""
    a = b = c = p = q = 0.0
    for network, side, ranks, one, seconds in points:
        v, l = sent(network, side, ranks) / seconds, math.log2(ranks) / seconds
        rest = (seconds - one + saved(network, side, ranks)) / seconds
        a, b, c, p, q = a + v * v, b + v * l, c + l * l, p + v * rest, q + l * rest
    determinant = a * c - b * b
    return (p * c - q * b) / determinant, (q * a - p * b) / determinant


def step(network, side, ranks, one, per_byte, latency):
    if ranks > HOST:
        per_byte = max(per_byte, 1 / HOST_LINK)
    return (one - saved(network, side, ranks) + sent(network, side, ranks) * per_byte +
            latency * math.log2(ranks))


def main():
    argparse.ArgumentParser(description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    points = measured()
    per_byte, latency = fit(points)
    print(f"B = {1e-9 / per_byte:.0f} GB/s, L = {1e3 * latency:.2f} ms\n")
    print("| network | `--shard` | GPUs | measured, ms | model |\n|---|---|---|---|---|")
    for network, side, ranks, one, seconds in points:
        model = step(network, side, ranks, one, per_byte, latency)
        print(f"| {network} | {side} | {ranks} | {1e3 * seconds:.1f} | {1e3 * model:.1f} "
              f"({100 * (model / seconds - 1):+.1f} %) |")
    print("\n| network | one GPU, ms | `--shard` | 8 GPUs | 64 | 1024 |\n|---|---|---|---|---|---|")
    for network, (_, guess) in NETWORKS.items():
        ones = [one for name, _, _, one, _ in points if name == network]
        one = guess / 1e3 + update(network) if guess else sum(ones) / len(ones)
        side = "weights" if network.startswith("FLUX") else "optimizer"
        cells = [step(network, side, n, one, per_byte, latency) for n in (8, 64, 1024)]
        print(f"| {network} | {1e3 * one:.1f} | {side} | " +
              " | ".join(f"{1e3 * t:.1f} ({100 * one / t:.0f} %)" for t in cells) + " |")


if __name__ == "__main__":
    main()
