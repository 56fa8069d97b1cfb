"""Every example runs on the CPU with --tiny, and finds what it changed equal to what was there."""

import subprocess
import sys
import unittest
from pathlib import Path

from models import library

EXAMPLES = Path(__file__).parents[1] / "examples"


class Examples(unittest.TestCase):
    def run_tiny(self, name):
        file = EXAMPLES / f"{name}.py"
        out = subprocess.run([sys.executable, file, "--tiny"], capture_output=True, text=True)
        self.assertEqual(out.returncode, 0, out.stderr[-2000:])
        self.assertIn("restored: bit-equal", out.stdout)
        self.assertRegex(out.stdout, r"difference (\d\.\de-(0[5-9]|1\d)|0\.0e\+00) of the result's norm")

    def test_ltx_video(self):
        library("diffusers")
        self.run_tiny("ltx_video")

    def test_llama(self):
        library("transformers")
        self.run_tiny("llama")

    def test_hub(self):
        library("kernels")
        self.run_tiny("hub")

    def test_custom_op(self):
        self.run_tiny("custom_op")


if __name__ == "__main__":
    unittest.main()
