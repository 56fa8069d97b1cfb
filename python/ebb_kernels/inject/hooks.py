"""Where a module's own forward is kept. Hooks of accelerate and diffusers wrap it: they write
`module.forward` and keep the function before, in `_old_forward` and in the references of
`_diffusers_hook`. A replacement goes to the innermost place, so that it does not matter whether
hooks are added, or removed, before or after it."""

import types

from .guards import is_own

_PREVIOUS = "_ebb_kernels_previous"


class _Place:
    """An attribute that holds a forward."""

    def __init__(self, holder, name):
        self.holder, self.name = holder, name

    def get(self):
        return self.holder.__dict__.get(self.name)

    def set(self, value):
        self.holder.__dict__[self.name] = value


def _places(module):
    registry = module.__dict__.get("_diffusers_hook")
    for reference in () if registry is None else registry._fn_refs:
        hooked = reference.original_forward is not None
        yield _Place(reference, "original_forward" if hooked else "forward")
    yield _Place(module, "_old_forward")
    yield _Place(module, "forward")


def _innermost(module):
    """The place of the forward that is no wrapper: wrappers are partial functions, what they wrap
    is a method of the module. None where the forward is of a kind that is not known."""
    for place in _places(module):
        if isinstance(place.get(), types.MethodType):
            return place
    return None if "forward" in module.__dict__ else _Place(module, "forward")


def current(module):
    """Our forward of a module, None where it has none."""
    place = _innermost(module)
    forward = place.get() if place else None
    return forward.__func__ if is_own(forward) else None


def replace(module, function) -> bool:
    """Makes a function the forward of a module. False where its forward is not known."""
    place = _innermost(module)
    if place is None:
        return False
    before = place.get()
    if not is_own(before):
        inherited = before is None or before.__func__ is type(module).forward
        module.__dict__[_PREVIOUS] = None if inherited else before
    place.set(types.MethodType(function, module))
    return True


def restore(module) -> bool:
    """Undoes replace(). False where there was nothing to undo."""
    previous = module.__dict__.pop(_PREVIOUS, None)
    place = _innermost(module)
    if place is None or not is_own(place.get()):
        return False
    if previous is None and place.holder is module and place.name == "forward":
        del module.__dict__["forward"]
    else:
        place.set(previous or types.MethodType(type(module).forward, module))
    return True
