"""What the environment asks for (EBB_KERNELS, EBB_KERNELS_CHECK), the self-test, and errors of the
library, which are exceptions of another C++ runtime in the wheel's. Needs torch; of the library's
CPU backend what is there."""

import contextlib
import io
import os
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import torch

from ebb_kernels import _compare, _operators, reference, selftest
from ebb_kernels._cases import CASES, operands
from ebb_kernels._checked import Checked

RMS_NORM = (1e-6, 0.0, "once", "")


def has_cpu_backend():
    libraries, functions = _operators.register("ebb_kernels_probe", engine_on_cpu=True)
    try:
        functions["softmax"].forward(torch.zeros(1, 8))
    except RuntimeError:
        return False
    return bool(libraries)


CPU_BACKEND = has_cpu_backend()


def in_process(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False,
        env=os.environ | environment,
    )


class Modes(unittest.TestCase):
    def test_the_environment_says_which(self):
        script = "from ebb_kernels import _operators; print(_operators.MODE)"
        for mode, environment in {
            "on": {"EBB_KERNELS": "", "EBB_KERNELS_CHECK": "0"},
            "off": {"EBB_KERNELS": "off", "EBB_KERNELS_CHECK": "1"},
            "check": {"EBB_KERNELS": "on", "EBB_KERNELS_CHECK": "1"},
        }.items():
            done = in_process(script, **environment)
            self.assertEqual(done.stdout, f"{mode}\n", done.stderr)

    def test_what_the_environment_may_not_say(self):
        for name, rule in {"EBB_KERNELS": "on or off", "EBB_KERNELS_CHECK": "0 or 1"}.items():
            done = in_process("import ebb_kernels", **{name: "maybe"})
            self.assertIn(f"ebb_kernels: {name} is {rule} (got 'maybe')", done.stderr)

    def test_off_is_the_reference_on_every_device(self):
        self.libraries, functions = _operators.register("ebb_kernels_off", engine_on_cpu=True, mode="off")
        for name in functions:
            for key in ("CPU", "CUDA"):
                op = f"ebb_kernels_off::{name}"
                self.assertTrue(torch._C._dispatch_has_kernel_for_dispatch_key(op, key), op)
        x = torch.randn(3, 64)
        got = functions["rms_norm"].forward(x, None, None, *RMS_NORM)
        self.assertTrue(torch.equal(got, reference.rms_norm(x, None, None, *RMS_NORM)))

    @unittest.skipUnless(CPU_BACKEND, "the library has no CPU backend")
    def test_check_computes_both_at_the_first_call_of_a_kind(self):
        self.libraries, functions = _operators.register("ebb_kernels_check", engine_on_cpu=True, mode="check")
        for case in CASES:
            with self.subTest(str(case)):
                given = operands(case, torch.float32, "cpu", requires_grad=True)
                op = functions[case.function].forward
                calls = []

                def counted(*arguments, wrapped=Checked._compare):
                    calls.append(arguments)
                    return wrapped(*arguments)

                with mock.patch.object(Checked, "_compare", counted):
                    for _ in range(2):
                        y = _compare.results(op(*given, *case.attributes))
                        sum(v.sum() for v in y if v.requires_grad).backward()
                self.assertEqual([c[0].name for c in calls],
                                 [case.function, f"{case.function}_backward"])
        p = torch.zeros(8)
        numbers = torch.tensor([1e-2, 0.1, 1e-3, 1.0])
        functions["adamw"].forward(p, p.clone(), p.clone(), torch.ones(8), numbers, 0.9, 0.999,
                                   1e-8, 0.0)
        self.assertLess(p.max(), 0)

    def test_check_names_what_differs(self):
        wrong = Checked("double", lambda x, n: 2 * x + 1e-2, lambda x, n: 2 * x)
        with self.assertRaisesRegex(RuntimeError, r"result 0 is .* double\(torch.float32\[2, 3\]"):
            wrong(torch.zeros(2, 3), "n")
        right = Checked("double", lambda x, n: 2 * x, lambda x, n: 2 * x)
        right(torch.randn(2, 3), "n")
        x = torch.zeros(3)
        with self.assertRaisesRegex(RuntimeError, "result 0 is"):
            Checked("fill", lambda x: x.fill_(1), lambda x: x.fill_(2), [0])(x)


class SelfTest(unittest.TestCase):
    def run_it(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = selftest.main()
        return code, said.getvalue()

    def test_every_function_agrees(self):
        code, said = self.run_it()
        count = len(_operators.functions)
        self.assertEqual(code, 0, said)
        self.assertTrue(said.endswith(f"\n{count} of {count} functions agree with torch\n"), said)

    def test_it_sees_a_function_that_does_not(self):
        with mock.patch.object(reference, "softmax", lambda x: torch.softmax(2 * x, -1)):
            code, said = self.run_it()
        self.assertEqual(code, 1)
        self.assertRegex(said, "softmax +FAILED")
        self.assertIn("times the tolerance away", said)

    def test_where_nothing_runs_it_says_why_once(self):
        with mock.patch("ebb_kernels.ops.softmax", side_effect=RuntimeError("no such device")):
            code, said = self.run_it()
        self.assertEqual((code, said.count("no such device")), (1, 1))


class Errors(unittest.TestCase):
    """Exceptions of the library become Python's, in every thread, again and again."""

    def test_they_are_runtime_errors_that_say_what_is_wrong(self):
        self.libraries, functions = _operators.register("ebb_kernels_errors", engine_on_cpu=True)
        op = functions["rms_norm"].forward
        rule = r"weight must be \[4\]" if CPU_BACKEND else "computes on GPUs alone"

        def wrong(_):
            for _ in range(100):
                with self.assertRaisesRegex(RuntimeError, rule):
                    op(torch.zeros(2, 4), torch.zeros(3), None, *RMS_NORM)
            return True

        with ThreadPoolExecutor(4) as threads:
            self.assertTrue(all(threads.map(wrong, range(8))))


if __name__ == "__main__":
    unittest.main()
