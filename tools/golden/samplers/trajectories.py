"""Runs a k-diffusion style sampler function on the toy and records one golden case."""

import contextlib

import torch

import toy


class Calls:
    """A denoiser model(x, sigma, **extra_args) that counts its calls."""

    def __init__(self, space):
        self.space, self.sigmas = space, []

    def __call__(self, x, sigma, **_):
        self.sigmas.append(float(sigma.reshape(-1)[0]))
        return toy.denoise(x, sigma, self.space)


def sigma_arguments(name, sigmas):
    """How a sampler takes the grid: the list, or its ends and the number of evaluations."""
    if name not in ("dpm_fast", "dpm_adaptive"):
        return (sigmas,)
    low = sigmas[-1] if sigmas[-1] > 0 else sigmas[-2]
    return (low, sigmas[0]) + ((len(sigmas) - 1,) if name == "dpm_fast" else ())


@contextlib.contextmanager
def precision(dtype):
    """The default dtype, and torch.arange in it where a reference fixes float32 (er_sde)."""
    arange = torch.arange
    torch.set_default_dtype(dtype)
    torch.arange = lambda *a, **k: arange(
        *a, **{key: dtype if v == torch.float32 else v for key, v in k.items()})
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.arange = arange


def once(run, model, space, grid, dtype):
    """One run; (x, model, draws, rows that the callback saw)."""
    with precision(dtype):
        x = torch.tensor([toy.STARTS[space]], dtype=dtype)
        sigmas = torch.tensor(toy.GRIDS[grid], dtype=dtype)
        draws, rows = toy.Draws(), []
        with draws.patched(), torch.no_grad():
            out = run(model, x, sigmas, draws, lambda info: rows.append(info["x"][0].tolist()))
        return out[0].double().tolist(), model, draws, rows


def case(run, make_model, names, detail=False):
    """names: sampler, options, space, grid. A reference that raises gives a case with "error"."""
    record = dict(names)
    try:
        where = names["space"], names["grid"]
        x, model, draws, rows = once(run, make_model(), *where, torch.float64)
        single = once(run, make_model(), *where, torch.float32)[0]
    except Exception as error:  # pylint: disable=broad-except
        record["error"] = f"{type(error).__name__}: {error}"[:120]
        return record
    record.update(x=x, nfe=len(model.sigmas), draws=draws.count)
    record["f32_error"] = float(f"{max(abs(a - b) for a, b in zip(x, single)):.2g}")
    if detail:
        record["evaluated"] = model.sigmas
        record["noise_pairs"] = draws.pairs
        record["rows"] = rows
    return record


FIELDS = {
    "x": "final x from the starts of the space, float64 run",
    "nfe": "calls of the denoiser", "draws": "draws of noise, used or not",
    "f32_error": "max |difference| of the reference's own float32 run (toy still in float64)",
    "evaluated": "sigmas of the calls", "noise_pairs": "(sigma, sigma') that noise was asked for",
    "rows": "x as the reference's callback reports it at each step, before the step's update",
    "error": "the reference raises on this case",
}
