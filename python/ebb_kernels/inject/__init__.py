"""inject() gives the modules of a model ebb's functions; restore() takes them away.

Levels, each with those before it: "modules" (norms, gated and activated products), "processors"
(attention: norms of queries and keys, rotation), "blocks" (residual, gate, norm and modulation of a
block in one pass). "auto" is the last. What has no recipe at a level is served at the one below.
"""

import warnings

import torch

from . import hooks, models, processors
from .recipe import LEVELS, all_recipes, find, load
from .report import Report

__all__ = ["Report", "inject", "restore"]


def inject(model, level="auto") -> Report:
    """Replaces what ebb has recipes for in a torch.nn.Module, or in every component of a pipeline
    of diffusers, and says what it did. ValueError where it found nothing at all.

    Weights stay where they are, in the modules, and are read in each call, so that offloading,
    casting, adapters, training and state_dict() go on working. A second call adds what is new.
    """
    level = LEVELS[-1] if level == "auto" else level
    if level not in LEVELS:
        raise ValueError(f"inject: level is one of auto, {', '.join(LEVELS)} (got '{level}')")
    load()
    parts = _components(model)
    report = Report(level, [name for name in parts if name])
    for component, root in parts.items():
        _warn_of_rivals(root, component, compiled=hasattr(model, "_orig_mod"))
        for name, module in root.named_modules():
            _inject_module(module, ".".join(filter(None, (component, name))), report)
        models.inject(root, component, report)
    if not report.replaced:
        raise ValueError(_nothing(model, report))
    return report


def restore(model) -> int:
    """Undoes inject(): afterwards the model computes the bits it did before. The number of modules
    put back."""
    count = 0
    for root in _components(model).values():
        models.restore(root)
        for module in root.modules():
            count += hooks.restore(module)
            count += processors.restore(module)
    return count


def _components(model):
    """The modules of a pipeline by name, or {"": module}."""
    if isinstance(model, torch.nn.Module):
        return {"": getattr(model, "_orig_mod", model)}
    found = getattr(model, "components", None)
    if not isinstance(found, dict):
        raise TypeError(f"inject: needs a torch.nn.Module or a pipeline (got {type(model)})")
    return {name: m for name, m in found.items() if isinstance(m, torch.nn.Module)}


def _inject_module(module, name, report):
    wanted = LEVELS[: LEVELS.index(report.level) + 1]
    for found, stale, own in (
        (*find(type(module)), hooks),
        (*processors.recipe_of(module), processors),
    ):
        ours = own.current(module)
        if ours is not None:
            report.replaced[name] = ours.ebb_recipe.name
        elif found is not None and found.level in wanted:
            _apply(found, module, name, report, own)
        elif stale is not None and stale.level in wanted:
            _warn_stale(stale)
            report.skipped[name] = f"{stale.name}: this release computes something else"
    _note_foreign_processor(module, name, report)


def _apply(recipe, module, name, report, own):
    why = recipe.applies(module) if recipe.applies else None
    if why is None and own.replace(module, recipe.function) is False:
        why = "its forward was replaced by something else"
    if why is None:
        report.replaced[name] = recipe.name
    else:
        report.skipped[name] = f"{recipe.name}: {why}"


def _note_foreign_processor(module, name, report):
    processor = getattr(module, "processor", None)
    if processor is None or name in report.replaced or name in report.skipped:
        return
    if report.level != "modules" and hasattr(type(module), "set_processor"):
        report.skipped[name] = f"no recipe for {type(processor).__name__}"


def _warn_of_rivals(root, component, compiled):
    if compiled or any(m._compiled_call_impl is not None for m in root.modules()):
        warnings.warn(
            f"inject: {component or 'the model'} is compiled already, and compiled code keeps what "
            "it was made from: inject first, or call torch.compiler.reset()",
            stacklevel=3,
        )
    if getattr(root, "_use_kernels", False):
        warnings.warn(
            f"inject: {component or 'the model'} has use_kernels on, with which train() and eval() "
            "replace forwards again: inject after them, or turn it off",
            stacklevel=3,
        )


_warned = set()


def _warn_stale(recipe):
    if recipe not in _warned:
        _warned.add(recipe)
        warnings.warn(
            f"inject: the recipe {recipe.name} is for another release of "
            f"{recipe.classes[0].partition('.')[0]}; its level is left out there",
            stacklevel=5,
        )


def _nothing(model, report):
    classes = sorted({type(m).__name__ for c in _components(model).values() for m in c.modules()})
    known = ", ".join(r.name for r in all_recipes())
    why = "; ".join(sorted(set(report.skipped.values()))) or "no recipe for any of its classes"
    return (
        f"inject: nothing to replace in {type(model).__name__} at level {report.level}: {why} "
        f"(classes: {', '.join(classes[:12])}; recipes: {known})"
    )
