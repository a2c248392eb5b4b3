"""Hatch's hook: a wheel has the compiled kernels, so that installing one never compiles.

An editable installation has none: ``make install`` and the tests compile them.  ``SHALE_WHEEL_MACHINE`` builds for
another machine, which takes the compiler of the package ``ziglang``.
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

    def dependencies(self) -> list[str]:
        """Return what compiling needs: numba, and a C compiler where none is installed."""
        if os.environ.get("CC") or (shutil.which("cc") and not self._machine_is_chosen()):
            return ["numba>=0.61"]
        return ["numba>=0.61", "ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel for every Python from 3.11 on this kind of machine."""
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root, "shared")))
        from shale.kernels.compiler.module import MODULE_PATH, build

        machine = os.environ.get("SHALE_WHEEL_MACHINE") or platform.machine()
        self.app.display_info(f"compiling the kernels for {machine}: about a minute")
        # Not in the source tree, whose own module is for the machine at hand.
        self._folder = tempfile.TemporaryDirectory()
        module = Path(self._folder.name, MODULE_PATH.name)
        # With the machine chosen, zig links against an old libc, and the wheel runs on every current Linux.
        build(module, machine, portable=True, use_zig=self._machine_is_chosen())
        system = _GLIBC_TAG if self._machine_is_chosen() else "linux"
        build_data["tag"] = f"cp311-abi3-{system}_{machine}"
        build_data["pure_python"] = False
        build_data["force_include"][str(module)] = f"shale/kernels/{module.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the module, which is in the wheel now."""
        if version != "editable":
            self._folder.cleanup()

    def _machine_is_chosen(self) -> bool:
        return bool(os.environ.get("SHALE_WHEEL_MACHINE"))
