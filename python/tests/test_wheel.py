"""The wheel in the file EBB_WHEEL: its name, contents and shared object, and what it says in an
environment of its own without torch. scripts/wheel runs it on what it made. Needs binutils."""

import base64
import ctypes
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WHEEL = Path(os.environ["EBB_WHEEL"])
LIBRARY = "ebb_kernels/lib/libebb_kernels.so"
MEGABYTE = 10**6
# Of glibc; its dynamic linker has thread-local variables.
NEEDED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
          "ld-linux-x86-64.so.2"}


def run(*command, **options):
    return subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=False, **options
    )


def output_of(*command):
    done = run(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Wheel(unittest.TestCase):
    """The file and what is in it."""

    @classmethod
    def setUpClass(cls):
        cls.zip = zipfile.ZipFile(WHEEL)
        cls.names = [n for n in cls.zip.namelist() if not n.endswith("/")]
        [cls.info] = {n.split("/")[0] for n in cls.names if ".dist-info/" in n}

    @classmethod
    def tearDownClass(cls):
        cls.zip.close()

    def text(self, name):
        return self.zip.read(f"{self.info}/{name}").decode()

    def test_its_name_is_what_it_says_of_itself(self):
        name, version, python, abi, platforms = WHEEL.stem.split("-")
        self.assertEqual(self.info, f"{name}-{version}.dist-info")
        self.assertEqual((name, python, abi), ("ebb_kernels", "py3", "none"))
        tags = re.findall("^Tag: (.*)$", self.text("WHEEL"), re.M)
        self.assertEqual(tags, [f"py3-none-{p}" for p in platforms.split(".")])
        self.assertIn("\nRoot-Is-Purelib: false\n", self.text("WHEEL"))
        metadata = self.text("METADATA")
        self.assertIn("\nName: ebb-kernels\n", metadata)
        self.assertIn(f"\nVersion: {version}\n", metadata)
        self.assertEqual(re.findall("^Requires-Dist: (.*)$", metadata, re.M),
                         ['torch>=2.10; extra == "torch"'])

    def test_the_package_and_nothing_else_is_in_it(self):
        package = ROOT / "python" / "ebb_kernels"
        sources = {f"ebb_kernels/{p.relative_to(package).as_posix()}"
                   for p in package.rglob("*.py")}
        packed = {n for n in self.names if not n.startswith(self.info)}
        self.assertEqual(packed, sources | {LIBRARY})
        about = {n.removeprefix(f"{self.info}/") for n in self.names if n.startswith(self.info)}
        self.assertLessEqual({"METADATA", "WHEEL", "RECORD", "licenses/LICENSE"}, about)

    def test_the_record_is_right(self):
        rows = dict(line.split(",", 1) for line in self.text("RECORD").splitlines())
        self.assertEqual(rows.pop(f"{self.info}/RECORD"), ",")
        self.assertEqual(set(rows), set(self.names) - {f"{self.info}/RECORD"})
        for name, row in rows.items():
            content = self.zip.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
            self.assertEqual(row, f"sha256={digest.rstrip('=')},{len(content)}", name)

    def test_its_size(self):
        self.assertLess(sum(f.file_size for f in self.zip.infolist()), 25 * MEGABYTE)
        self.assertLess(WHEEL.stat().st_size, 15 * MEGABYTE)

    def test_packed_again_it_has_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            library = self.zip.extract(LIBRARY, folder)
            out = Path(folder, "out")
            done = run(ROOT / "scripts" / "wheel", "--library", library, "--out", out)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            [again] = out.iterdir()
            self.assertEqual(again.name, WHEEL.name)
            self.assertEqual(again.read_bytes(), WHEEL.read_bytes())


class SharedObject(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        with zipfile.ZipFile(WHEEL) as wheel:
            cls.file = wheel.extract(LIBRARY, cls.folder.name)
        cls.symbols = output_of("objdump", "-T", cls.file).splitlines()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_it_exports_the_c_interface(self):
        header = (ROOT / "include" / "ebb" / "kernels.h").read_text()
        declared = set(re.findall(r"\b(ebb_kernels_\w+)\(", header))
        exported = {s.split()[-1] for s in self.symbols
                    if re.match("[0-9a-f]{8}", s) and "*UND*" not in s}
        self.assertEqual(exported, declared)

    def test_it_wants_no_newer_glibc_than_the_tag_says(self):
        tag = re.search(r"manylinux_2_(\d+)_x86_64", WHEEL.name)
        self.assertIsNotNone(tag, WHEEL.name)
        for symbol in self.symbols:
            if "*UND*" not in symbol:
                continue
            version = re.search(r"\((\w+)_([\d.]+)\)", symbol)
            if version is None:
                self.assertIn(" w ", symbol)  # one that need not be there
                continue
            self.assertEqual(version[1], "GLIBC", symbol)
            numbers = [int(n) for n in version[2].split(".")[:2]]
            self.assertLessEqual(numbers, [2, int(tag[1])], symbol)

    def test_it_needs_glibc_alone(self):
        text = output_of("readelf", "-d", self.file)
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
        self.assertLessEqual(needed, NEEDED)
        self.assertNotIn("RUNPATH", text)

    def test_its_version_is_the_wheels(self):
        library = ctypes.CDLL(self.file)
        library.ebb_kernels_version.restype = ctypes.c_char_p
        self.assertEqual(library.ebb_kernels_version().decode(), WHEEL.name.split("-")[1])

    def test_it_says_which_devices_it_has_not(self):
        library = ctypes.CDLL(self.file)
        library.ebb_kernels_error.restype = ctypes.c_char_p
        opened = ctypes.c_void_p()
        self.assertNotEqual(library.ebb_kernels_open(b"cpu", ctypes.byref(opened)), 0)
        self.assertIn("computes on GPUs alone", library.ebb_kernels_error().decode())
        if library.ebb_kernels_open(b"cuda", ctypes.byref(opened)) != 0:
            self.assertRegex(library.ebb_kernels_error().decode(), "no CUDA device here|without CUDA")


class Installed(unittest.TestCase):
    """In a new environment, by pip, without a network and without torch."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        environment = Path(cls.folder.name, "environment")
        output_of(sys.executable, "-m", "venv", environment)
        cls.python = environment / "bin" / "python"
        output_of(cls.python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet",
                  "--no-deps", "--no-index", WHEEL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def python_says(self, *arguments):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("EBB_", "PYTHON"))}
        done = run(self.python, *arguments, cwd=self.folder.name, env=environment)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stderr.strip()

    def test_without_torch_the_import_says_so(self):
        said = self.python_says("-c", "import ebb_kernels")
        self.assertEqual(said.count("Error: "), 1, said)
        self.assertTrue(said.endswith("ebb_kernels needs torch 2.10 or newer (pip install torch)"))

    def test_without_torch_the_selftest_says_so(self):
        said = self.python_says("-m", "ebb_kernels.selftest")
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertIn("ebb_kernels needs torch 2.10 or newer (pip install torch)", said)


if __name__ == "__main__":
    unittest.main()
