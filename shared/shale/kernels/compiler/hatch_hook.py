"""Hatch's hook: a wheel has the compiled kernels, so that installing one never compiles.

An editable installation has none: ``make install`` and the tests compile them.  ``SHALE_WHEEL_MACHINE`` builds for
every CPU of a machine, this or another one, which takes the compiler of the package ``ziglang``.  Without it the
kernels are for the CPU at hand, in half the time: so ``pip install`` builds a source distribution.
"""

import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_GLIBC_TAG = "manylinux_2_17"


class KernelsHook(BuildHookInterface):
    """Compiles the kernels before a wheel is packed."""

    PLUGIN_NAME = "custom"
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return what compiling needs: numba, and a C compiler where none is installed."""
        if not self._can_compile():
            return []
        if os.environ.get("CC") or (shutil.which("cc") and not self._machine_is_chosen()):
            return ["numba>=0.61"]
        return ["numba>=0.61", "ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel for every Python from 3.11 on.

        Where no kernels can be compiled, the wheel has none, and what is installed is plain Python.
        """
        if version == "editable":
            return
        machine = self._machine()
        if not self._can_compile():
            self.app.display_warning(
                f"no kernels are compiled for {sys.platform} on {machine}: Shale will run in plain Python, ten to a "
                "hundred times slower"
            )
            return
        from shale.kernels.compiler.module import MODULE_PATH, BuildError, build

        self.app.display_info(f"compiling the kernels for {machine}: up to a minute")
        # Not in the source tree, whose own module is for the machine at hand.
        self._folder = folder = tempfile.TemporaryDirectory()
        module = Path(folder.name, MODULE_PATH.name)
        # With the machine chosen, zig links against an old libc, and the wheel runs on every current Linux.
        try:
            build(module, machine, portable=self._machine_is_chosen(), use_zig=self._machine_is_chosen())
        except BuildError as error:
            self.app.abort(f"{error}\nA wheel of Shale needs no compiler: it has the kernels.")
        system = _GLIBC_TAG if self._machine_is_chosen() else "linux"
        build_data["tag"] = f"cp311-abi3-{system}_{machine}"
        build_data["pure_python"] = False
        build_data["force_include"][str(module)] = f"shale/kernels/{module.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the module, which is in the wheel now."""
        if self._folder is not None:
            self._folder.cleanup()

    def _machine(self) -> str:
        return os.environ.get("SHALE_WHEEL_MACHINE") or platform.machine()

    def _can_compile(self) -> bool:
        source = str(Path(self.root, "shared"))
        if source not in sys.path:
            sys.path.insert(0, source)
        from shale.kernels.compiler.module import VARIANTS

        return self._machine() in VARIANTS and (sys.platform == "linux" or self._machine_is_chosen())

    def _machine_is_chosen(self) -> bool:
        return bool(os.environ.get("SHALE_WHEEL_MACHINE"))
