"""Builds the extension module of the kernels: ``python -m shale.kernels.compiler.module [--target aarch64]``.

Compiling takes half a minute at most on two quiet cores.  It needs numba and a C compiler: the one that ``CC`` names,
``cc``, or that of the package ``ziglang``, which also compiles for other machines.
"""

import argparse
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from shale.kernels.compiler.glue import MODULE, module_source
from shale.kernels.compiler.objects import AARCH64, PARTS, X86_V2, X86_V3, Symbol, TargetCpu, compile_for

KERNELS = Path(__file__).parents[1]
MODULE_PATH = KERNELS / f"{MODULE}.abi3.so"
VARIANTS = {"x86_64": (X86_V3, X86_V2), "aarch64": (AARCH64,)}
"""The CPUs of a machine, the best one first."""
_GLIBC = "2.17"


class BuildError(Exception):
    """The module cannot be built; the message says what is missing."""


def source_digest(machine: str) -> str:
    """Return a digest of everything that the module for a machine is made of."""
    digest = hashlib.sha256(machine.encode())
    built_by = [Path(__file__).with_name(name) for name in ("objects.py", "glue.py", "module.py")]
    for path in (*sorted((KERNELS / "source").rglob("*.py")), *sorted((KERNELS / "layout").rglob("*.py")), *built_by):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_current(path: Path = MODULE_PATH) -> bool:
    """Return whether the module was built from the present sources, without loading it."""
    return path.is_file() and source_digest(platform.machine()).encode() in path.read_bytes()


def build(
    path: Path = MODULE_PATH, machine: str | None = None, *, portable: bool = False, use_zig: bool = False
) -> None:
    """Compile the kernels for a machine, by default this one, and write the module.

    Args:
        path: file to write.
        machine: as ``platform.machine`` names it.
        portable: compile for every CPU of that machine; otherwise for the CPU at hand, in half the time.
        use_zig: link with zig, against an old libc, even if there is another compiler.

    Raises:
        BuildError: there is no C compiler or no numba, or the machine is unknown.
    """
    machine = machine or platform.machine()
    if machine not in VARIANTS:
        raise BuildError(f"no kernels are compiled for {machine}, only for {', '.join(VARIANTS)}")
    if find_spec("numba") is None:
        raise BuildError("compiling the kernels needs numba: pip install numba")
    cpus = VARIANTS[machine] if portable or machine != platform.machine() else (_cpu_at_hand(machine),)
    compiler = _zig(machine) if use_zig else _compiler(machine)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        variants, objects = _compile(cpus, work)
        source = work / "module.c"
        source.write_text(module_source(variants, source_digest(machine)))
        _link(compiler, [source, *objects], path)


def _compile(cpus: Sequence[TargetCpu], folder: Path) -> tuple[list[tuple[TargetCpu, list[Symbol]]], list[Path]]:
    """Compile all kernels for each CPU; return the symbols of each and all object files."""
    jobs = [(cpu, part, folder / f"{cpu.variant}-{part}.o") for cpu in cpus for part in PARTS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for a process of its own
        compiled = list(pool.map(lambda job: compile_for(*job), jobs))
    symbols: dict[TargetCpu, list[Symbol]] = {cpu: [] for cpu in cpus}
    for (cpu, _, _), found in zip(jobs, compiled, strict=True):
        symbols[cpu] += found
    return list(symbols.items()), [path for _, _, path in jobs]


def _cpu_at_hand(machine: str) -> TargetCpu:
    """Return the best of the machine's CPUs whose features this one has."""
    from llvmlite.binding import get_host_cpu_features

    features = get_host_cpu_features()
    *better, last = VARIANTS[machine]
    return next((cpu for cpu in better if all(features.get(name) for name in cpu.requires)), last)


def _compiler(machine: str) -> list[str]:
    if machine == platform.machine():
        if "CC" in os.environ:
            return shlex.split(os.environ["CC"])
        if found := shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"):
            return [found]
    return _zig(machine)


def _zig(machine: str) -> list[str]:
    if find_spec("ziglang") is None:
        raise BuildError(f"no C compiler for {machine}: install one, or pip install ziglang")
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{_GLIBC}"]


def _link(compiler: Sequence[str], inputs: Sequence[Path], path: Path) -> None:
    """Compile and link into a file next to the target, then rename it: another process may load the old one."""
    unfinished = path.with_suffix(f".{os.getpid()}")
    flags = ["-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-s"]
    done = subprocess.run(
        [*compiler, *flags, *map(str, inputs), "-o", str(unfinished)], stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        unfinished.unlink(missing_ok=True)
        raise BuildError(f"{compiler[0]} failed to link the kernels:\n{done.stderr}")
    unfinished.replace(path)


def ensure_current() -> None:
    """Build the module unless it is current."""
    if not is_current():
        print("compiling the kernels: about half a minute", file=sys.stderr, flush=True)
        build()


def main() -> None:
    """Build the module if it is not current, or for another machine."""
    parser = argparse.ArgumentParser(prog="python -m shale.kernels.compiler.module")
    parser.add_argument("--target", choices=sorted(VARIANTS), help="build for this machine instead of this one")
    parser.add_argument("--output", type=Path, default=MODULE_PATH, help="file to write")
    arguments = parser.parse_args()
    try:
        if arguments.target is None and arguments.output == MODULE_PATH:
            ensure_current()
        else:
            build(arguments.output, arguments.target, portable=True)
    except BuildError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
