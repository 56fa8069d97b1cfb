"""The toy denoisers and the recorded noise that all sampler references run on.

Conditional (and only) prediction: the posterior mean of a mixture of two normals (weights .35, .65,
means -1.2, .8, deviations .25, .4). Unconditional one, where guidance needs it: of N(.5, .8^2).
Flow: D(x, sigma) = D_ve(x / (1 - sigma), sigma / (1 - sigma)), the prior mean at sigma >= 1.
The k-th draw of noise (k = 1, 2, ...) is sqrt(2) sin(12.9898 k) in every element.
"""

import contextlib
import math

import torch

WEIGHTS, MEANS, DEVIATIONS = (0.35, 0.65), (-1.2, 0.8), (0.25, 0.4)
UNCOND_MEAN, UNCOND_DEVIATION = 0.5, 0.8
STARTS = {"ve": [-6.0, 3.1, 0.4, -1.7], "flow": [-0.41, 0.21, 0.03, -0.12]}

ABOUT = {
    "denoiser": "posterior mean of a normal mixture: weights .35/.65, means -1.2/.8, std .25/.4",
    "uncond": "one normal: D = (.64 x + .5 sigma^2) / (.64 + sigma^2); the guided prediction of "
              "a cfg_pp case is the mixture's",
    "flow": "D(x, s) = D_ve(x/(1-s), s/(1-s)); at s >= 1 the prior mean (.1 for the mixture, .5)",
    "noise": "draw k = 1, 2, ... is sqrt(2) sin(12.9898 k) in every element",
    "run": "one tensor of 4 elements (matters where a norm or a deviation spans the tensor)",
}


def ve_mean(x, sigma, parts):
    """Posterior mean of sum w N(m, s^2) for x = x0 + sigma n, all in float64."""
    logs, means = [], []
    for weight, mean, deviation in parts:
        variance = deviation**2 + sigma**2
        logs.append(math.log(weight) - 0.5 * torch.log(variance) - (x - mean) ** 2 / (2 * variance))
        means.append((deviation**2 * x + sigma**2 * mean) / variance)
    share = torch.softmax(torch.stack(logs), dim=0)
    return (share * torch.stack(means)).sum(dim=0)


def denoise(x, sigma, space="ve", uncond=False):
    """The toy's D in float64, returned in x's dtype; sigma a number, scalar or [batch] tensor."""
    parts = [(1.0, UNCOND_MEAN, UNCOND_DEVIATION)] if uncond else list(
        zip(WEIGHTS, MEANS, DEVIATIONS))
    sigma = torch.as_tensor(sigma, dtype=torch.float64)
    sigma = sigma.reshape(-1, *[1] * (x.dim() - 1)) if sigma.dim() else sigma
    z = x.double()
    if space == "flow":
        prior = sum(weight * mean for weight, mean, _ in parts)
        safe = torch.clamp(sigma, max=1 - 1e-15)
        inner = ve_mean(z / (1 - safe), safe / (1 - safe), parts)
        return torch.where(sigma >= 1, torch.full_like(z, prior), inner).to(x.dtype)
    return ve_mean(z, sigma, parts).to(x.dtype)


class Draws:
    """Counts draws and answers each with the recorded value; remembers the pairs asked for."""

    def __init__(self):
        self.count, self.pairs = 0, []

    def value(self):
        self.count += 1
        return math.sqrt(2) * math.sin(12.9898 * self.count)

    def like(self, x):
        return torch.full_like(x, self.value())

    def sampler(self, x):
        """A k-diffusion style noise_sampler(sigma, sigma_next)."""

        def draw(sigma, sigma_next):
            self.pairs.append([float(sigma), float(sigma_next)])
            return torch.full_like(x, self.value())

        return draw

    @contextlib.contextmanager
    def patched(self):
        """torch.randn and torch.randn_like answer with recorded draws."""
        randn, randn_like = torch.randn, torch.randn_like

        def sized(*size, dtype=None, device=None, **_):
            shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
            return torch.full(tuple(shape), self.value(), dtype=dtype, device=device)

        torch.randn, torch.randn_like = sized, lambda x, **_: self.like(x)
        try:
            yield self
        finally:
            torch.randn, torch.randn_like = randn, randn_like


def karras(n, low=0.0291671582, high=14.6146412293, rho=7.0):
    """n values of the Karras grid and the final 0, in double."""
    a, b = high ** (1 / rho), low ** (1 / rho)
    return [(a + (i / (n - 1) if n > 1 else 0) * (b - a)) ** rho for i in range(n)] + [0.0]


def flow_simple(n, shift=3.0):
    """Every (1000/n)-th value of the shifted 1000-entry flow table from its end, and 0."""
    table = [shift * t / (1 + (shift - 1) * t) for t in ((i + 1) / 1000 for i in range(1000))]
    return [table[-(1 + int(i * 1000 / n))] for i in range(n)] + [0.0]


def stored(grid):
    """The grid as the golden file stores it: a run on the stored numbers is the same run."""
    return [float(f"{sigma:.12g}") for sigma in grid]


GRIDS = {
    "ve6": karras(6),
    "ve3": karras(3),
    "ve1": karras(1),
    "ve20": karras(20),
    "ve6_open": karras(6)[:-1],
    "ve6_discard": karras(7)[:-2] + [0.0],
    "flow6": flow_simple(6),
    "flow3": flow_simple(3),
    "flow1": flow_simple(1),
    "flow20": flow_simple(20),
    "flow6_part": flow_simple(6)[2:],
    "flow6_open": flow_simple(6)[:-1],
}
GRIDS = {name: stored(grid) for name, grid in GRIDS.items()}
GRIDS_ABOUT = ("ve<n>: karras n steps, .0291671582 .. 14.6146412293, rho 7, final 0; "
               "ve6_discard: n = 7 without the penultimate; flow<n>: 'simple' of the 1000-entry "
               "table of shift 3; _open: without the final 0; _part: from its third value on")
