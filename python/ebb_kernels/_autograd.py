"""How autograd sees an operator with a gradient of its own: for backward(), under the transforms of
torch.func, and in forward mode, which is refused."""

import contextlib

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad


def transforms():
    """Whether derivatives of a kind are taken that requires_grad does not tell: those of torch.func,
    and forward mode."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _tensors(arguments):
    """Those that an operator may have gradients for, lists of them too; None where one is absent."""
    flat = []
    for a in arguments:
        if isinstance(a, list):
            flat += a
        elif a is None or isinstance(a, torch.Tensor):
            flat.append(a)
    return flat


@contextlib.contextmanager
def _outer_transforms():
    """Derivatives, which autograd turns off while a function of its runs, for the transforms around
    the one that records it."""
    if not torch._C._are_functorch_transforms_active():
        yield
        return
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        yield


def kernel(op, setup, gradients, no_tangents):
    """The kernel of `op` for autograd's keys.

    setup(ctx, arguments, output) keeps what gradients(ctx, *grads) needs; it returns one for each
    tensor among the arguments. no_tangents: why there is no forward mode.
    """

    gives_list = str(op._schema).endswith("[]")

    def below(keys, arguments):
        return op.redispatch(keys & torch._C._after_autograd_keyset, *arguments)

    def forward(ctx, keys, arguments, *tensors):
        with torch._C._AutoDispatchBelowAutograd():
            with _outer_transforms():
                output = below(keys, arguments)
            output = tuple(output) if isinstance(output, list) else output
            setup(ctx, arguments, output)
        return output

    def backward(ctx, *grads):
        return None, None, *gradients(ctx, *grads)

    def jvp(ctx, *tangents):
        raise RuntimeError(no_tangents)

    recorded = type(
        f"{op._schema.name.replace('::', '_')}_",
        (torch.autograd.Function,),
        {f.__name__: staticmethod(f) for f in (forward, backward, jvp)},
    )

    def record(*arguments):
        if not torch._C._are_functorch_transforms_active():
            return recorded.apply(*arguments)
        # Of one transform, whose turn it is: as torch's own operators, which are below the choice
        # among transforms too.
        with enable_single_level_autograd_function():
            return super(torch.autograd.Function, recorded).apply(*arguments)

    def autograd(keys, *arguments):
        if not torch._C._is_torch_function_mode_enabled():
            return differentiated(keys, *arguments)
        with torch._C.DisableTorchFunction():  # modes have seen the call: this is within it
            return differentiated(keys, *arguments)

    def differentiated(keys, *arguments):
        tensors = _tensors(arguments)
        wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
        if wanted or forward_ad._current_level >= 0:
            output = record(keys, arguments, *tensors)
            return list(output) if gives_list else output
        with torch._C._AutoDispatchBelowAutograd():
            return below(keys, arguments)

    return autograd


def by_sample(op, free=0):
    """The rule of torch.vmap for `op`: a call a sample; or one call, where the samples are of no
    others than the first `free` operands, whose leading dims may be any."""

    def at(i, x, dim):
        if isinstance(x, list):
            return [at(i, y, d) for y, d in zip(x, dim)]
        return x if dim is None else x.select(dim, i)

    def is_one_call(dims, arguments):
        given = [d for d, x in zip(dims, arguments[:free]) if x is not None]
        return given and None not in given and not any(map(_is_some, dims[free:]))

    def rule(info, in_dims, *arguments):
        if is_one_call(in_dims, arguments):
            moved = (None if x is None else x.movedim(d, 0) for x, d in zip(arguments[:free], in_dims))
            return op(*moved, *arguments[free:]), 0
        found = [
            op(*(at(i, x, d) for x, d in zip(arguments, in_dims))) for i in range(info.batch_size)
        ]
        if isinstance(found[0], torch.Tensor):
            return torch.stack(found), 0
        kind = type(found[0])
        return kind(torch.stack(y) for y in zip(*found)), kind(0 for _ in found[0])

    return rule


def _is_some(dim):
    return any(map(_is_some, dim)) if isinstance(dim, list) else dim is not None
