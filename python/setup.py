"""The wheel: the package and its shared object, which CMake builds. `pip wheel ./python` makes one for
this machine, scripts/wheel one for others.

EBB_KERNELS_LIBRARY: a shared object to pack instead. EBB_BUILD and EBB_CMAKE_FLAGS: as for
scripts/build.
"""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent


def library():
    given = os.environ.get("EBB_KERNELS_LIBRARY")
    if given:
        return Path(given).resolve()
    build = ROOT / "scripts" / "build"
    if not build.is_file():
        raise SystemExit("ebb-kernels is built in ebb's source tree; python/ alone has no kernels")
    subprocess.run([build, "ebb_kernels_wheel"], check=True)
    return ROOT / os.environ.get("EBB_BUILD", "build") / "wheel" / "libebb_kernels.so"


class BuildPackage(build_py):
    def run(self):
        # what an earlier build left would be packed too
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        package = Path(self.build_lib, "ebb_kernels")
        if self.editable_mode:
            package = Path(__file__).resolve().parent / "ebb_kernels"
        (package / "lib").mkdir(parents=True, exist_ok=True)
        file = package / "lib" / "libebb_kernels.so"
        shutil.copy(library(), file)
        file.chmod(0o755)


class ForOnePlatform(Distribution):
    def has_ext_modules(self):
        return True


class ForAnyPython(bdist_wheel):
    """The shared object has nothing of Python in it."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    distclass=ForOnePlatform, cmdclass={"build_py": BuildPackage, "bdist_wheel": ForAnyPython}
)
