"""The C interface (include/ebb/kernels.h) by ctypes, on ebb's CPU backend; without torch. The shared
object is EBB_KERNELS_LIBRARY."""

import ctypes
import math
import os
import subprocess
import sys
import unittest
from pathlib import Path

C = ctypes


class Type(C.Structure):
    _fields_ = [
        ("dtype", C.c_int32),
        ("rank", C.c_int32),
        ("sizes", C.POINTER(C.c_int64)),
        ("strides", C.POINTER(C.c_int64)),
    ]


def tensor_type(sizes, strides=None, dtype=0):
    """Of sizes and strides; None: an optional operand that is absent."""
    if sizes is None:
        return Type(-1, 0, None, None)
    if strides is None:
        strides = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    array = C.c_int64 * len(sizes)
    return Type(dtype, len(sizes), array(*sizes), array(*strides))


class Library:
    def __init__(self):
        lib = self.lib = C.CDLL(os.environ["EBB_KERNELS_LIBRARY"])
        for name in ("error", "version", "schema", "numbered_schema"):
            getattr(lib, f"ebb_kernels_{name}").restype = C.c_char_p
        lib.ebb_kernels_result.restype = Type
        lib.ebb_kernels_workspace.restype = C.c_int64
        lib.ebb_kernels_run.argtypes = [C.c_void_p] * 5
        for name in ("result", "workspace", "wants_copy"):
            getattr(lib, f"ebb_kernels_{name}").argtypes = [C.c_void_p, C.c_int32][
                : 1 if name == "workspace" else 2
            ]
        self.device = C.c_void_p()
        self.check(lib.ebb_kernels_open(b"cpu", C.byref(self.device)))

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.ebb_kernels_error().decode())

    def prepare(self, function, types, **attributes):
        texts = [f"{k}={v}".encode() for k, v in attributes.items()]
        call = C.c_void_p()
        self.check(
            self.lib.ebb_kernels_prepare(
                self.device,
                function.encode(),
                (Type * len(types))(*types),
                len(types),
                (C.c_char_p * len(texts))(*texts),
                len(texts),
                C.byref(call),
            )
        )
        return call

    def run(self, function, types, data, **attributes):
        """Results as (sizes, values)."""
        call = self.prepare(function, types, **attributes)
        arrays = [None if d is None else (C.c_float * len(d))(*d) for d in data]
        results, index = [], 0
        while (t := self.lib.ebb_kernels_result(call, index)).dtype != -1:
            sizes = t.sizes[: t.rank]
            results.append((sizes, (C.c_float * math.prod(sizes))()))
            index += 1
        pointers = (C.c_void_p * len(arrays))(*[C.addressof(a) if a else None for a in arrays])
        out = (C.c_void_p * len(results))(*[C.addressof(a) for _, a in results])
        size = self.lib.ebb_kernels_workspace(call)
        memory = (C.c_char * (size + 64))()
        aligned = (C.addressof(memory) + 63) // 64 * 64 if size else None
        self.check(self.lib.ebb_kernels_run(call, pointers, out, aligned, None))
        return [(sizes, list(values)) for sizes, values in results]


LIBRARY = Library()


def rms_norm(row):
    scale = 1 / math.sqrt(sum(v * v for v in row) / len(row) + 1e-6)
    return [v * scale for v in row]


class CInterface(unittest.TestCase):
    def assertClose(self, got, want):
        self.assertEqual(len(got), len(want))
        for g, w in zip(got, want):
            self.assertAlmostEqual(g, w, delta=1e-5 * (1 + abs(w)))

    def test_schemas_are_those_that_torch_takes(self):
        schemas = []
        while text := LIBRARY.lib.ebb_kernels_schema(len(schemas)):
            schemas.append(text.decode())
        self.assertIn("softmax(Tensor x) -> Tensor", schemas)
        self.assertEqual(len({s.partition("(")[0] for s in schemas}), len(schemas))

    def test_functions_with_a_numbered_schema_are_followed_by_their_gradients(self):
        schema, numbered = LIBRARY.lib.ebb_kernels_schema, LIBRARY.lib.ebb_kernels_numbered_schema
        names, without, index = [], [], 0
        while text := schema(index):
            name = text.decode().partition("(")[0]
            if found := numbered(index):
                declared, _, results = text.decode().partition("(")[2].partition(") -> ")
                operands = [o for o in declared.split(", ") if o.startswith("Tensor")]
                self.assertEqual(
                    found.decode(),
                    f"{name}_numbered({', '.join(operands)}, int attributes) -> {results}",
                )
                index += 1
                self.assertTrue(schema(index).decode().startswith(f"{name}_backward(Tensor? grad_"))
                self.assertIsNone(numbered(index))
            else:
                without.append(name)
            names.append(name)
            index += 1
        self.assertIn("softmax", names)
        self.assertEqual(without, ["adamw"])
        self.assertIsNone(numbered(index))
        self.assertIsNone(numbered(-1))

    def test_a_norm_and_its_weight(self):
        x = [float(i) for i in range(1, 9)]
        types = [tensor_type([2, 4]), tensor_type([4]), tensor_type(None)]
        [(sizes, y)] = LIBRARY.run("rms_norm", types, [x, [1, 2, 3, 4], None])
        self.assertEqual(sizes, [2, 4])
        self.assertClose(
            y, [v * w for row in (x[:4], x[4:]) for v, w in zip(rms_norm(row), [1, 2, 3, 4])]
        )

    def test_strides_are_read(self):
        columns = [float(i) for i in range(12)]  # [2, 4] in rows of 6
        types = [tensor_type([2, 4], [6, 1]), tensor_type(None), tensor_type(None)]
        [(_, y)] = LIBRARY.run("rms_norm", types, [columns, None, None])
        self.assertClose(y, rms_norm(columns[:4]) + rms_norm(columns[6:10]))
        call = LIBRARY.prepare(
            "rms_norm", [tensor_type([2, 4], [1, 1]), tensor_type(None), tensor_type(None)]
        )
        self.assertEqual(LIBRARY.lib.ebb_kernels_wants_copy(call, 0), 1)

    def test_a_formula(self):
        types = [tensor_type([4]), tensor_type([4])]
        [(_, y)] = LIBRARY.run(
            "map", types, [[1, 2, 3, 4], [5, 6, 7, 8]], formula="x * y + 1", names="x,y"
        )
        self.assertEqual(y, [6, 13, 22, 33])

    def test_errors_name_what_is_wrong(self):
        types = [tensor_type([2, 4]), tensor_type([3]), tensor_type(None)]
        for part, call in {
            "did you mean 'rms_norm'": lambda: LIBRARY.prepare("rms_nrom", types),
            "weight must be [4] (got [3])": lambda: LIBRARY.prepare("rms_norm", types),
            "has no attribute 'epsilon'": lambda: LIBRARY.prepare("rms_norm", types, epsilon=1),
            "column 5": lambda: LIBRARY.prepare(
                "map", [tensor_type([4])], formula="x + y", names="x"
            ),
        }.items():
            with self.subTest(part), self.assertRaises(RuntimeError) as caught:
                call()
            self.assertIn(part, str(caught.exception))

    def test_without_torch_the_package_says_so(self):
        package = Path(__file__).parent.parent
        script = "import sys; sys.modules['torch'] = None; import ebb_kernels"
        run = subprocess.run(
            [sys.executable, "-B", "-c", script], cwd=package, capture_output=True, text=True
        )
        self.assertIn("ebb_kernels needs torch 2.10 or newer", run.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
