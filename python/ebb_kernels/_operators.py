"""The operators that torch sees: schemas, kernels, fakes, gradients and autocast of every function
that the shared object has. All of it follows from the schemas and one table."""

import contextlib
import functools
import os
import re
from dataclasses import dataclass

import torch

from . import _autograd, _library, reference
from ._checked import Checked
from ._namespace import NAMESPACE


def _like(x, shape=None, dtype=None):
    return x.new_empty(x.shape if shape is None else shape, dtype=dtype or x.dtype)


def _norm_dtype(rounding, dtype, x, weight, *modulation):
    if dtype:
        return reference.DTYPES[dtype]
    out = x.dtype
    if rounding != "once":
        if weight is not None:
            out = (
                weight.dtype if rounding == "diffusers" else torch.promote_types(out, weight.dtype)
            )
        for m in modulation:
            out = out if m is None else torch.promote_types(out, m.dtype)
    return out


def _fake_rms_norm(x, weight, bias, eps, offset, rounding, dtype):
    return _like(x, dtype=_norm_dtype(rounding, dtype, x, weight))


def _fake_layer_norm(x, weight, bias, eps, dtype):
    return _like(x, dtype=_norm_dtype("once", dtype, x, weight))


def _fake_ada_norm(x, scale, shift, weight, bias, kind, eps, rounding, dtype):
    return _like(x, dtype=_norm_dtype(rounding, dtype, x, weight, scale, shift))


def _fake_add_norm(x, add, gate, scale, shift, weight, bias, kind, eps, offset, rounding, dtype):
    return _like(x, dtype=_norm_dtype(rounding, dtype, x, weight, scale, shift)), _like(x)


def _fake_gated(x, other, act, gate):
    return _like(x) if other is not None else _like(x, (*x.shape[:-1], x.shape[-1] // 2))


def _fake_linear_gated(x, weight, bias, act, gate):
    return _like(x, (*x.shape[:-1], weight.shape[0] // 2))


def _fake_linear_act(x, weight, bias, act):
    return _like(x, (*x.shape[:-1], weight.shape[0]))


def _fake_attention(q, k, v, bias, scale, causal):
    return _like(q), _like(q, (q.shape[0], q.shape[2], q.shape[1]), torch.float32)


def _fake_map(inputs, formula, names, dtype):
    widest = functools.reduce(torch.promote_types, (x.dtype for x in inputs))
    shape = torch.broadcast_shapes(*(x.shape for x in inputs))
    return _like(inputs[0], shape, reference.DTYPES.get(dtype, widest))


@dataclass(frozen=True)
class _Entry:
    fake: callable
    constant: tuple[int, ...] = ()  # the results that have no gradient
    free: int = 0  # so many first operands have any leading dims, and no other has their sizes
    autocast: bool = False  # floats are cast to autocast's dtype, as torch does for its products


_TABLE = {
    "rms_norm": _Entry(_fake_rms_norm, free=1),
    "layer_norm": _Entry(_fake_layer_norm, free=1),
    "ada_norm": _Entry(_fake_ada_norm),
    "add_norm": _Entry(_fake_add_norm),
    "group_norm": _Entry(lambda x, *_: _like(x)),
    "softmax": _Entry(lambda x: _like(x), free=1),
    "rope": _Entry(lambda x, *_: _like(x)),
    "qk_rope": _Entry(lambda q, k, *_: (_like(q), _like(k))),
    "qk_norm_rope": _Entry(lambda q, k, *_: (_like(q), _like(k))),
    "gated": _Entry(_fake_gated, free=2),
    "linear_gated": _Entry(_fake_linear_gated, free=1, autocast=True),
    "linear_act": _Entry(_fake_linear_act, free=1, autocast=True),
    "attention": _Entry(_fake_attention, constant=(1,), autocast=True),
    "map": _Entry(_fake_map),
    "adamw": _Entry(lambda *_: None),
}


def _without_defaults(schema):
    """Torch leaves out arguments that are the defaults when it calls Python."""
    return re.sub(r'=("[^"]*"|[^,)]*)', "", schema)


def _parts(schema):
    """The name, and the declarations ("Tensor x") of the operands and of the attributes."""
    name, _, rest = schema.partition("(")
    declared = [p for p in rest.rpartition(") -> ")[0].split(", ") if p]
    operands = [p for p in declared if p.startswith("Tensor")]
    return name, operands, declared[len(operands) :]


def _dense(function):
    """The function with dense results."""

    def dense(*arguments):
        out = function(*arguments)
        if isinstance(out, tuple):
            return tuple(y.contiguous() for y in out)
        return out if out is None else out.contiguous()

    return dense


def _alike(x, y):
    return x.shape == y.shape and x.dtype == y.dtype


@contextlib.contextmanager
def _recording():
    """Autograd inside of an operator with a gradient of its own, where torch turns it off."""
    off = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradFunctionality", "ADInplaceOrView", "AutogradOther"):
        off = off.remove(getattr(torch._C.DispatchKey, key))
    on = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(on, off), torch.enable_grad():
        yield


class _Function:
    """One function's operators in a namespace. reference_on: keys of torch's dispatcher."""

    def __init__(self, library, namespace, schemas, reference_on):
        self.name, self.operands, declared = _parts(schemas.forward)
        self.attribute_names = [a.split(" ")[1] for a in declared]
        self.has_text = [a.split(" ")[0] == "str" for a in declared]
        self.entry = _TABLE[self.name]
        self.forward = getattr(getattr(torch.ops, namespace), self.name).default
        self.results = schemas.forward.rpartition(") -> ")[2].count("Tensor")
        self.has_gradients = schemas.backward is not None
        self.is_list = self.operands[0].startswith("Tensor[]")
        for key in reference_on:
            library.impl(self.name, self._reference(), key)
        torch.library.register_fake(f"{namespace}::{self.name}", self.entry.fake, lib=library)
        if not self.has_gradients:
            library.impl(self.name, self._overwrite, "ADInplaceOrView", with_keyset=True)
            torch.library.register_vmap(
                f"{namespace}::{self.name}", self._not_by_sample, lib=library
            )
            return
        self._register_numbered(library, namespace, _parts(schemas.numbered)[0])
        backward, given, _ = _parts(schemas.backward)
        # Of the results, how many the gradients are made from; the operands are always.
        self.saved = len(given) - self.results - len(self.operands)
        self.backward = getattr(getattr(torch.ops, namespace), backward).default
        self.same_gradient = functools.lru_cache(maxsize=1024)(self._same_gradient)
        for key in reference_on:
            library.impl(backward, self._reference_backward, key)
        torch.library.register_fake(f"{namespace}::{backward}", self._fake_backward, lib=library)
        once = f"ebb_kernels: {self.name} has no second derivative"
        self._differentiate(
            library, self.forward, self._setup, self._gradients,
            f"ebb_kernels: {self.name} has no derivative in forward mode (jvp)", self.entry.free,
        )
        self._differentiate(library, self.backward, lambda *_: None, self._no_more(once), once)
        if self.entry.autocast:
            for device in ("cuda", "cpu"):
                self._register_autocast(library, device)

    # ---- with a number for the attributes: no gradients; elsewhere than on the engine the operator

    def _register_numbered(self, library, namespace, numbered):
        self.numbers, self.numbered_attributes = {}, {}
        self.numbered = getattr(getattr(torch.ops, namespace), numbered).default
        library.impl(numbered, torch.library.fallthrough_kernel, "Autograd")
        library.impl(numbered, self._by_number, "CompositeExplicitAutograd")

    def _by_number(self, *arguments):
        *operands, number = arguments
        with torch._C._AutoDispatchBelowAutograd():
            return self.forward(*operands, *self.numbered_attributes[number])

    def number_of(self, attributes):
        """The number that stands for attributes; None: there is none."""
        try:
            number = self.numbers.get(attributes)
        except TypeError:  # they are none at all, as torch will say
            return None
        if number is None:
            # a text that says a number is none, as torch will say
            if any(type(v) is str and not t for v, t in zip(attributes, self.has_text)):
                return None
            number = _library.number_of(self.name, self._named(attributes))
            if number is not None:
                self.numbered_attributes[number] = attributes
                self.numbers[attributes] = number
        return number

    def _named(self, attributes):
        return dict(zip(self.attribute_names, attributes))

    # ---- operands of the backward operator: gradients, perhaps results, operands, attributes, bits

    def _split(self, arguments):
        grads = arguments[: self.results]
        rest = arguments[self.results + self.saved :]
        operands = rest[: len(self.operands)]
        return grads, operands, rest[len(self.operands) : -1], rest[-1]

    def _flat(self, operands):
        return list(operands[0]) if self.is_list else list(operands)

    def _fake_backward(self, *arguments):
        _, operands, _, needs = self._split(arguments)
        return [
            _like(x) for i, x in enumerate(self._flat(operands)) if x is not None and needs >> i & 1
        ]

    def _reference(self):
        return _dense(getattr(reference, self.name))

    def check(self, library, namespace, key):
        """Serves a key by the operators of another namespace, compared with the reference."""
        there = getattr(torch.ops, namespace)
        overwritten = [i for i, kind in enumerate(self.operands) if "!" in kind]
        kernel = getattr(there, self.name).default
        library.impl(self.name, Checked(self.name, kernel, self._reference(), overwritten), key)
        if self.has_gradients:
            backward = self.backward._schema.name.partition("::")[2]
            kernel = getattr(there, backward).default
            library.impl(backward, Checked(backward, kernel, self._reference_backward), key)

    def _reference_backward(self, *arguments):
        grads, operands, attributes, needs = self._split(arguments)
        flat, wanted = [], []
        for i, x in enumerate(self._flat(operands)):
            flat.append(None if x is None else x.detach())
            if x is not None and needs >> i & 1:
                wanted.append(flat[-1].requires_grad_())
        with _recording():
            call = [flat] if self.is_list else flat
            out = getattr(reference, self.name)(*call, *attributes)
            pairs = zip(out if isinstance(out, tuple) else (out,), grads)
            given = [(y, dy.to(y.dtype)) for y, dy in pairs if dy is not None and y.requires_grad]
            found = torch.autograd.grad(
                [y for y, _ in given], wanted, [dy for _, dy in given], allow_unused=True
            )
        return [
            x.new_zeros(x.shape) if d is None else d.contiguous()
            for x, d in zip(wanted, found)
        ]

    # ---- autograd

    @staticmethod
    def _differentiate(library, op, setup, gradients, no_tangents, free=0):
        namespace, _, name = op._schema.name.partition("::")
        kernel = _autograd.kernel(op, setup, gradients, no_tangents)
        library.impl(name, kernel, "Autograd", with_keyset=True)
        rule = _autograd.by_sample(op, free)
        torch.library.register_vmap(f"{namespace}::{name}", rule, lib=library)

    def _not_by_sample(self, *_):
        raise RuntimeError(f"ebb_kernels: {self.name} overwrites its operands: it has no vmap")

    def _overwrite(self, keys, *arguments):
        """Tells autograd, which looks at versions, that the first operands are overwritten."""
        for x, kind in zip(arguments, self.operands):
            if "!" in kind:
                torch.autograd.graph.increment_version(x)
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return self.forward.redispatch(
                keys & torch._C._after_ADInplaceOrView_keyset, *arguments
            )

    def _setup(self, ctx, arguments, output):
        flat = self._flat(arguments[: len(self.operands)])
        saved = list(output if isinstance(output, tuple) else (output,))
        ctx.attributes = arguments[len(self.operands) :]
        ctx.same_gradient = self.same_gradient(*ctx.attributes)  # here: compilers trace what follows
        ctx.operands = len(flat)
        ctx.set_materialize_grads(False)  # gradients of unused results are absent
        ctx.save_for_backward(*saved[: self.saved], *flat)
        ctx.mark_non_differentiable(*(output[i] for i in self.entry.constant))

    def _same_gradient(self, *attributes):
        return _library.same_gradient(self.name, self._named(attributes))

    def _gradients(self, ctx, *grads):
        """Of all operands."""
        needed = ctx.needs_input_grad[-ctx.operands :]
        if all(g is None for g in grads):
            return [None] * ctx.operands
        tensors = ctx.saved_tensors  # once: checkpointing recomputes them for one reading
        results, flat = tensors[: self.saved], tensors[self.saved :]
        needs = sum(1 << i for i, x in enumerate(flat) if x is not None and needed[i])
        out = [None] * len(flat)
        # Summands have the gradient of the sum, as torch's own.
        for i, x in enumerate(flat):
            if needs & ctx.same_gradient & 1 << i and _alike(x, grads[0]):
                out[i] = grads[0]
                needs -= 1 << i
        operands = [list(flat)] if self.is_list else flat
        grads = [None if i in self.entry.constant else g for i, g in enumerate(grads)]
        if needs:
            found = iter(self.backward(*grads, *results, *operands, *ctx.attributes, needs))
            out = [next(found) if needs >> i & 1 else out[i] for i in range(len(flat))]
        return out

    @staticmethod
    def _no_more(why):
        def gradients(ctx, *grads):
            raise RuntimeError(why)

        return gradients

    # ---- autocast

    def _register_autocast(self, library, device):
        key = f"Autocast{device.upper()}"
        off = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

        narrowed = tuple(reference.DTYPES.values())  # float64 stays, as with torch's own

        def kernel(*arguments):
            dtype = torch.get_autocast_dtype(device)
            cast = [
                a.to(dtype) if isinstance(a, torch.Tensor) and a.dtype in narrowed else a
                for a in arguments
            ]
            with torch._C._ExcludeDispatchKeyGuard(off):
                return self.forward(*cast)

        library.impl(self.name, kernel, key)


def _mode():
    """What the environment asks for: "on", "off" (every function is its reference) or "check" (the
    first call of each kind is compared with it)."""
    mode, check = os.environ.get("EBB_KERNELS", ""), os.environ.get("EBB_KERNELS_CHECK", "")
    if mode not in ("", "on", "off"):
        raise ValueError(f"ebb_kernels: EBB_KERNELS is on or off (got {mode!r})")
    if check not in ("", "0", "1"):
        raise ValueError(f"ebb_kernels: EBB_KERNELS_CHECK is 0 or 1 (got {check!r})")
    return "off" if mode == "off" else "check" if check == "1" else "on"


MODE = _mode()


def _define(namespace, schemas):
    library = torch.library.Library(namespace, "DEF")
    for schema in (schema for s in schemas for schema in s if schema is not None):
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    return library


def register(namespace=NAMESPACE, engine_on_cpu=False, mode=MODE):
    """Defines and registers everything in a namespace: the libraries, which must live on, and the
    functions by name. engine_on_cpu: tensors on the CPU are served by ebb's own CPU backend, where
    the shared object has it, and not by the reference; for tests without a GPU."""
    schemas = [
        _library.Schemas(*(s and _without_defaults(s) for s in of_one))
        for of_one in _library.schemas()
    ]
    libraries = [_define(namespace, schemas)]
    keys = {"CUDA", "CPU"} if engine_on_cpu else {"CUDA"}
    if mode == "off":
        keys = set()
    engine = namespace if mode == "on" else f"{namespace}_unchecked"
    if mode == "check":
        libraries.append(_define(engine, schemas))
    for key in keys:
        _library.register(engine, key)
    functions = {}
    for of_one in schemas:
        function = _Function(libraries[0], namespace, of_one, {"CUDA", "CPU"} - keys)
        functions[function.name] = function
        for key in keys if mode == "check" else ():
            function.check(libraries[0], engine, key)
    return libraries, functions


_kept = register()  # the libraries live as long as the process
functions = _kept[1]
