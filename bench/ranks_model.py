#!/usr/bin/env python3
"""A model of the time of a training step on R GPUs, fitted to bench/results/ranks.jsonl, and what
it predicts for more of them.

    python bench/ranks_model.py
    python bench/ranks_model.py --plot docs/many-gpus.svg

    t(R) = t(1) - s U (1 - 1/R) + V(R) / B + L log2 R

t(1) is the step on one GPU; U the update of weights, moments and average, which ranks that keep
parts (s = 1) divide: nine passes over the weights' f32 bytes P at the bandwidth of device memory;
V(R) what a rank sends (docs/many-gpus.md, What is split); B how much of it a second of exchange
that nothing hides would move, and L what collectives cost besides. B and L are fitted by least
squares of relative errors, for exchange by copies and for NCCL apart. Between hosts, where copies
do not reach, a GPU has HOST_LINK / B of the bandwidth, if that is less. t(1) is that of the slowest
of the GPUs by itself, where that was measured.
Prints the fits, their errors, and the predictions, as tables in Markdown; --plot draws what copies
measured and the model's eight GPUs.
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


def lines_of(link):
    """Weak scaling by copies, on the newest machine that measured four GPUs, or over NCCL."""
    lines = [json.loads(line) for line in (ROOT / "bench/results/ranks.jsonl").open()]
    lines = [line for line in lines if line["bench"] == "ranks" and "share" not in line]
    if link == "nccl":
        return [line for line in lines if line.get("link", "nccl") == "nccl"]
    newest = [line for line in lines if line.get("link") == "auto" and line["gpus"] == 4][-1]
    return [line for line in lines if line.get("machine") == newest["machine"]]


def measured(lines):
    """[(network, side, ranks, seconds on one, seconds)] of lines, each with its machine's own time
    on one GPU."""
    one = {(line["case"], line.get("machine")): max(line.get("each_alone", [line["ms"]]))
           for line in lines if line["side"] == "ebb" and line["gpus"] == 1}
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


def report(points, counts):
    """The fit to the points and its errors; predictions for so many GPUs."""
    per_byte, latency = fit(points)
    print(f"B = {1e-9 / per_byte:.0f} GB/s, L = {1e3 * latency:.2f} ms\n")
    print("| network | `--shard` | GPUs | measured, ms | model |\n|---|---|---|---|---|")
    for network, side, ranks, one, seconds in points:
        model = step(network, side, ranks, one, per_byte, latency)
        print(f"| {network} | {side} | {ranks} | {1e3 * seconds:.1f} | {1e3 * model:.1f} "
              f"({100 * (model / seconds - 1):+.1f} %) |")
    print("\n| network | one GPU, ms | `--shard` | " +
          " | ".join(f"{n} GPUs" for n in counts) + " |" + "\n" + "|---" * (3 + len(counts)) + "|")
    for network, (_, guess) in NETWORKS.items():
        ones = [one for name, _, _, one, _ in points if name == network]
        one = guess / 1e3 + update(network) if guess else sum(ones) / len(ones)
        side = "weights" if network.startswith("FLUX") else "optimizer"
        cells = [step(network, side, n, one, per_byte, latency) for n in counts]
        print(f"| {network} | {1e3 * one:.1f} | {side} | " +
              " | ".join(f"{1e3 * t:.1f} ({100 * one / t:.0f} %)" for t in cells) + " |")


COLOURS = {"unet64": "#1b7837", "adm64": "#2166ac", "dit_xl2": "#b2182b"}


def plot(path, points):
    """Speed of a GPU in per cent of what one alone has, by the number of GPUs, as SVG: measured as
    discs, the model as rings."""
    per_byte, latency = fit(points)

    def at(ranks, percent):
        return 70 + 130 * math.log2(ranks), 20 + 9 * (105 - percent)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="560" height="270" '
           'font-family="sans-serif" font-size="13">',
           '<rect width="560" height="270" fill="#fff"/>']
    for percent in (85, 90, 95, 100):
        y = at(1, percent)[1]
        out.append(f'<path d="M70 {y}H470" stroke="#ddd"/>'
                   f'<text x="22" y="{y + 4}">{percent} %</text>')
    for ranks in (1, 2, 4, 8):
        out.append(f'<text x="{at(ranks, 0)[0] - 4}" y="235">{ranks}</text>')
    out.append('<text x="200" y="257">GPUs; rings at 4 and 8: the model</text>')
    for network, colour in COLOURS.items():
        own = [p for p in points if p[0] == network and p[1] == "optimizer"]
        done = [(1, 100.0)] + [(ranks, 100 * one / seconds) for _, _, ranks, one, seconds in own]
        guess = [(n, 100 * own[0][3] / step(network, "optimizer", n, own[0][3], per_byte, latency))
                 for n in (4, 8)]
        line = " ".join("{:.0f},{:.1f}".format(*at(*point)) for point in done)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for fill, found in ((colour, done), ("none", guess)):
            for point in found:
                x, y = at(*point)
                out.append(f'<circle cx="{x:.0f}" cy="{y:.1f}" r="4" fill="{fill}" '
                           f'stroke="{colour}"/>')
        x, y = at(*done[-1])
        out.append(f'<text x="{x + 10:.0f}" y="{y + 4:.1f}" fill="{colour}">{network}</text>')
    path.write_text("\n".join(out + ["</svg>"]) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.svg")
    args = parser.parse_args()
    by_copies = measured(lines_of("copies"))
    if args.plot:
        plot(args.plot, by_copies)
    print("By copies: ", end="")
    report(by_copies, (8,))
    print("\nOver NCCL: ", end="")
    report(measured(lines_of("nccl")), (8, 64, 1024))


if __name__ == "__main__":
    main()
