"""When ebb's functions may stand in for a module's own: asked in every call, since weights move,
dtypes change and hooks come and go between calls."""

import types

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def served(x, *others) -> bool:
    """Whether ebb takes these tensors (None: absent): dense ones of f32, bf16 or f16 on one CPU or
    CUDA device. Not under autocast, whose choices of dtype are those of the functions replaced."""
    cuda = x.is_cuda
    if not (cuda or x.is_cpu) or torch.is_autocast_enabled("cuda" if cuda else "cpu"):
        return False
    device = x.device
    for t in (x, *others):
        if t is None:
            continue
        if t.dtype not in _FLOATS or t.device != device:
            return False
        if type(t) not in _PLAIN and is_traceable_wrapper_subclass(t):
            return False
    return True


def of_dtype(dtype, *tensors) -> bool:
    for t in tensors:
        if t is not None and t.dtype != dtype:
            return False
    return True


def is_own(forward) -> bool:
    """Whether a module's forward is one of ours."""
    return isinstance(forward, types.MethodType) and hasattr(forward.__func__, "ebb_recipe")


def bare(module) -> bool:
    """Whether nothing but the module's class acts when it is called, so that its weights can be
    used without calling it. Offloading, casting and adapters hook into the call."""
    own = module.__dict__
    if "_old_forward" in own or "_diffusers_hook" in own:
        return False
    for name in _HOOKS:
        if own[name]:
            return False
    forward = own.get("forward")
    return (
        forward is None
        or is_own(forward)
        or getattr(forward, "__func__", None) is type(module).forward
    )
