"""Golden random numbers of torch, numpy, torchsde and the webui: writes noise.json.

    python noise_golden.py --webui CHECKOUT --commit HASH --out tests/golden/samplers

CHECKOUT is one of AUTOMATIC1111/stable-diffusion-webui, outside this repository.
"""

import argparse
import importlib.metadata
import pathlib

import numpy as np
import torch

import files
import toy
import webui_reference

def values(x):
    return files.ends_and_sums(x.detach().double().reshape(-1).tolist())


def raw_words():
    for seed in (0, 42, 5489, 2**32 - 1):
        engine = np.random.MT19937()
        engine._legacy_seeding(seed)  # pylint: disable=protected-access
        words = engine.random_raw(2000)
        yield {"kind": "mt19937", "seed": seed, "first": words[:6].tolist(),
               "at_623": words[623:626].tolist(), "at_1998": words[1998:].tolist()}


def normal_calls():
    """(dtype, seed, sizes of consecutive calls)"""
    for n in list(range(1, 41)) + [47, 48, 63, 64]:
        yield torch.float32, 42, [n]
    for n in (1, 2, 3, 5, 15, 16, 17, 20, 24, 31, 32, 33):
        yield torch.float64, 42, [n]
    for dtype in (torch.float32, torch.float64):
        for calls in ([3, 3], [3, 16, 3], [16, 3, 16], [20, 20], [1, 1, 1], [15, 17, 15],
                      [16384], [1607], [1000, 3]):
            yield dtype, 0, calls
        for seed in (0, 1, 2**32 - 1, 2**32 + 42, 2**40 + 5, 2**63 + 7, -1):
            yield dtype, seed, [16]
    for dtype in (torch.float16, torch.bfloat16):
        for n in (3, 15, 16, 17, 20, 24, 32, 40):
            yield dtype, 42, [n]


def normals():
    for dtype, seed, calls in normal_calls():
        generator = torch.Generator().manual_seed(seed)
        yield {"kind": "randn", "dtype": str(dtype).split(".")[1], "seed": str(seed), "calls": [
            {"n": n, **values(torch.randn(n, dtype=dtype, generator=generator))} for n in calls]}
    for dtype in (torch.float32, torch.float64):
        generator = torch.Generator().manual_seed(42)
        yield {"kind": "rand", "dtype": str(dtype).split(".")[1], "seed": "42", "calls": [
            {"n": 20, **values(torch.rand(20, dtype=dtype, generator=generator))}]}
    generator = torch.Generator().manual_seed(42)
    yield {"kind": "randn", "dtype": "float32", "seed": "42", "note": "not contiguous: scalar path",
           "calls": [{"n": 32, **values(torch.randn(8, 4, generator=generator).new_empty(8, 4)
                                        .t().normal_(generator=generator).t())}]}


def seed_sequences():
    entropies = (0, 1, 42, 123456789012, 2**64 - 1, [3735928559, 195939070, 229505742, 305419896])
    for entropy in entropies:
        for pool in (4, 24):
            for key in ((), (0, 0), (0, 1), (1, 1), (5, 3), (2**20 + 1, 24)):
                sequence = np.random.SeedSequence(entropy, spawn_key=key, pool_size=pool)
                yield {"kind": "seed_sequence", "entropy": str(entropy), "spawn_key": key,
                       "pool_size": pool, "state": sequence.generate_state(6).tolist()}


def philox(webui):
    module = webui("rng_philox")
    for counter, key in (([0] * 4, [0] * 2), ([2**32 - 1] * 4, [2**32 - 1] * 2),
                         ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
                          [0xA4093822, 0x299F31D0])):
        words = [np.array([v], dtype=np.uint32) for v in counter]
        keys = [np.array([v], dtype=np.uint32) for v in key]
        out = module.philox4_32(np.stack(words), np.stack(keys))
        yield {"kind": "philox", "counter": counter, "key": key, "out": out[:, 0].tolist()}
    for seed in (0, 42, 2**32 + 42, 2**63 + 7):
        generator = module.Generator(seed)
        yield {"kind": "nv", "seed": str(seed), "calls": [
            {"n": n, **values(torch.from_numpy(generator.randn((n,))))} for n in (12, 5, 1000)]}


def brownian_sampler(shape, low, high, seed):
    sampling = __import__("sys").modules["k_diffusion.sampling"]
    return sampling.BrownianTreeNoiseSampler(torch.zeros(shape), low, high, seed=seed)


def brownian():
    grid = torch.tensor(toy.karras(5)[:-1], dtype=torch.float32)
    flow = torch.tensor([1.0, 0.9, 0.75, 0.5, 0.2, 0.003], dtype=torch.float32)
    steps = list(zip(grid[:-1], grid[1:]))
    mids = [pair for a, b in steps for pair in ((a, (a * b).sqrt()), (a, b))]
    plans = [([16], 42, grid, steps), ([16], 0, grid, steps), ([3], 42, grid, steps),
             ([1, 2, 3, 4], 2**40 + 5, grid, steps), ([2, 8], [1, 2], grid, steps),
             ([16], 42, grid, mids), ([16], 42, grid, steps[::-1] + [(grid[0], grid[-1])]),
             ([16], 42, flow, list(zip(flow[:-1], flow[1:]))),
             ([16], 42, grid, [(grid[3], grid[2]), (grid[0], grid[2]), (grid[0], grid[1]),
                               (grid[1], grid[2])]),
             ([20], 7, grid, steps)]
    for shape, seed, levels, queries in plans:
        low, high = levels.min(), levels.max()
        sampler = brownian_sampler(shape, low, high, seed)
        yield {"kind": "brownian", "shape": shape, "seed": seed, "sigma_min": float(low),
               "sigma_max": float(high), "queries": [
                   {"from": float(a), "to": float(b),
                    "values": sampler(a, b).reshape(-1).tolist()} for a, b in queries]}


def image_noise(webui):
    """ImageRNG: first and following noise of images, variation seeds, resizing, seed delta."""
    rng, shared = webui("rng"), webui("shared")
    plans = [dict(), dict(subseeds=[100, 101], subseed_strength=0.3),
             dict(subseeds=[100, 101], subseed_strength=1.0),
             dict(seed_resize_from_h=32, seed_resize_from_w=48),
             dict(seed_resize_from_h=64, seed_resize_from_w=24),
             dict(seed_resize_from_h=32, seed_resize_from_w=48, subseeds=[7, 8],
                  subseed_strength=0.5)]
    for source in ("CPU", "NV"):
        for delta in (0, 31337):
            for plan in plans if not delta else plans[:2]:
                shared.opts.randn_source, shared.opts.eta_noise_seed_delta = source, delta
                images = rng.ImageRNG((2, 5, 4), [1000, 1001], **plan)
                yield {"kind": "image_rng", "source": source, "shape": [2, 5, 4],
                       "seeds": [1000, 1001], "eta_noise_seed_delta": delta, **plan,
                       "first": images.next().reshape(-1).tolist(),
                       "second": images.next().reshape(-1).tolist()}
    low, high = (torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(s)) for s in (1, 2))
    for strength, other in ((0.25, high), (0.5, low * 1.0001), (0.75, -low)):
        yield {"kind": "slerp", "strength": strength, "shape": [1, 4, 6],
               "low": low.reshape(-1).tolist(), "high": other.reshape(-1).tolist(),
               "values": rng.slerp(strength, low, other).reshape(-1).tolist()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--webui", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    webui = webui_reference.load(args.webui)
    head = {
        "reference": {"torch": torch.__version__, "numpy": np.__version__,
                      "capability": torch.backends.cpu.get_cpu_capability(),
                      "torchsde": importlib.metadata.version("torchsde"),
                      "k-diffusion": importlib.metadata.version("k-diffusion"),
                      "stable-diffusion-webui": args.commit},
        "notes": "randn: consecutive calls of torch.randn on one CPU generator. Long results: the "
                 "first 8, last 24, and the sums of x, x^2, x sin(i), x cos(3i). nv: the NV "
                 "source, one generator. brownian: k-diffusion's BrownianTreeNoiseSampler (divided "
                 "by the root of the interval) over float32 sigmas; a list of seeds is one a batch "
                 "entry. image_rng: ImageRNG's first two results, shape (channels, height, width), "
                 "resize sizes in pixels (8 a cell); slerp along the second axis.",
    }
    cases = [*raw_words(), *normals(), *seed_sequences(), *philox(webui), *brownian(),
             *image_noise(webui)]
    files.write(args.out / "noise.json", head, cases, 9)


if __name__ == "__main__":
    main()
