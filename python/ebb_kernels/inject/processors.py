"""Attention processors of diffusers: objects that an attention module calls with itself. One that
replaces another is of a subclass of its class and has its attributes, so that the library's checks
and its settings (the backend of attention, context parallelism) find what they look for."""

import copy
import functools

from .recipe import find


@functools.cache
def _replacement(cls, call):
    own = {
        "__call__": call,
        "__deepcopy__": _deep_copy,
        "__reduce__": _reduce,
        "__module__": cls.__module__,
    }
    return type(cls.__name__, (cls,), own)


def _deep_copy(self, memo):
    made = copy.copy(self.ebb_previous)
    memo[id(self)] = made
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    made.__class__ = type(self)
    return made


def _reduce(self):
    """Pickled as the processor before: the file does not need this package."""
    return copy.copy, (self.ebb_previous,)


def current(module):
    """Our function of a module's processor, None where it has none."""
    call = type(getattr(module, "processor", None)).__dict__.get("__call__")
    return call if hasattr(call, "ebb_recipe") else None


def candidate(module):
    """The class of a module's processor, None where there is none that can be replaced: one that is
    a module, and so not among plain attributes, has weights, those of IP adapters."""
    processor = module.__dict__.get("processor")
    return None if processor is None else type(processor)


def replace(module, call):
    before = module.processor
    after = copy.copy(before)
    after.__class__ = _replacement(type(before), call)
    after.ebb_previous = before
    module.processor = after


def restore(module) -> bool:
    """Puts the processor back that was replaced, with the settings made since."""
    if current(module) is None:
        return False
    settings = dict(module.processor.__dict__)
    module.processor = settings.pop("ebb_previous")
    module.processor.__dict__.update(settings)
    return True


def recipe_of(module):
    """find() for a module's processor."""
    cls = candidate(module)
    return (None, None) if cls is None else find(cls)
