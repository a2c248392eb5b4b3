"""Build a wheel for every machine and check them: ``python -m tests.checks.wheels [--interpreter COMMAND]...``.

Each wheel must have the tag of the oldest Linux that it runs on, need nothing but glibc 2.17 and Python's stable
interface of 3.11, and work in a fresh environment of every interpreter that there is.  Interpreters of this machine
are found by their names.  ``--interpreter`` adds one by its command line, which may run it in an emulator:

    --interpreter 'qemu-aarch64-static -L ROOT ROOT/usr/bin/python3.11'

What no interpreter runs is checked by its symbols only, and the last lines say so.
"""

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from abi3info import DATAS, FUNCTIONS
from abi3info.models import PyVersion, Symbol
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from shale.kernels.compiler.module import MODULE_PATH, VARIANTS
from tests.paths import REPOSITORY

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OLDEST = PyVersion(3, 11)
GLIBC = (2, 17)
INSTALLED_MB_MAX = 150
SMOKE = Path(__file__).with_name("wheel_smoke.py")
OUTPUT = REPOSITORY / ".shale" / "wheels"
UV = str(Path(sys.executable).with_name("uv"))
"""The one of the environment at hand, which need not be on the path."""


class WheelError(Exception):
    """A wheel is not as it must be."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that runs here, by its command line."""

    command: tuple[str, ...]
    version: str
    machine: str

    @property
    def has_venv(self) -> bool:
        """Whether it can create an environment; one with a prefix (an emulator) gets its packages as a folder."""
        return len(self.command) == 1


def build(machine: str) -> Path:
    """Build the wheel for a machine."""
    folder = OUTPUT / machine
    _run([UV, "build", "--quiet", "--wheel", "-o", str(folder)], cwd=REPOSITORY, SHALE_WHEEL_MACHINE=machine)
    return max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime)


def check_tag(wheel: Path, machine: str) -> None:
    """Require the tag of glibc 2.17, as ``auditwheel`` sees the wheel.

    Raises:
        WheelError: it has another one.
    """
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
    said = " ".join(_run([sys.executable, "-m", "auditwheel", "show", str(wheel)]).split())
    if f'consistent with the following platform tag: "{tag}"' not in said or tag not in wheel.name:
        raise WheelError(f"{wheel.name} is not of {tag}: {said}")


def check_module(module: Path) -> None:
    """Require what every Python from 3.11 on and every glibc from 2.17 on has.

    Raises:
        WheelError: the module needs more, or exports more than its entry point.
    """
    with module.open("rb") as file:
        elf = ELFFile(file)
        symbols = [
            symbol
            for section in elf.iter_sections()
            if isinstance(section, SymbolTableSection)
            for symbol in section.iter_symbols()
            if symbol.name and symbol["st_info"]["bind"] in {"STB_GLOBAL", "STB_WEAK"}
        ]
        needed = {symbol.name for symbol in symbols if symbol["st_shndx"] == "SHN_UNDEF"}
        exported = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
        libraries = set(_libraries(elf))
        versions = set(_glibc_versions(elf))
    if unstable := [name for name in sorted(needed) if name.startswith(("Py", "_Py")) and not _is_stable(name)]:
        raise WheelError(f"{module.name} needs what is not in the stable interface of 3.11: {', '.join(unstable)}")
    if not libraries <= {"libc.so.6", "libpthread.so.0", "ld-linux-aarch64.so.1"}:
        raise WheelError(f"{module.name} needs {', '.join(sorted(libraries))}")
    if versions and max(versions) > GLIBC:
        raise WheelError(f"{module.name} needs glibc {max(versions)}")
    entry = f"PyInit_{module.name.partition('.')[0]}"
    if exported - {"_init", "_fini"} != {entry}:
        raise WheelError(f"{module.name} exports {', '.join(sorted(exported))} instead of {entry}")


def _is_stable(name: str) -> bool:
    entry = FUNCTIONS.get(Symbol(name)) or DATAS.get(Symbol(name))
    return entry is not None and entry.added <= OLDEST


def _libraries(elf: ELFFile) -> Iterator[str]:
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            yield from (tag.needed for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED")


def _glibc_versions(elf: ELFFile) -> Iterator[tuple[int, ...]]:
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, entries in section.iter_versions():
                for entry in entries:
                    if match := re.fullmatch(r"GLIBC_([\d.]+)", entry.name):
                        yield tuple(map(int, match[1].split(".")))


def interpreters(extra: Sequence[str]) -> Iterator[Interpreter]:
    """Yield the interpreters of this machine, one of each version, and the extra ones by their command lines."""
    folders = [*map(Path, os.environ["PATH"].split(os.pathsep)), *Path.home().glob(".pyenv/versions/*/bin")]
    for version in PYTHONS:
        found = (_interpreter([str(folder / f"python{version}")]) for folder in folders)
        yield from [each for each in found if each][:1]
    for command in extra:
        if (each := _interpreter(shlex.split(command))) is None:
            raise WheelError(f"{command} is no interpreter")
        yield each


def _interpreter(command: Sequence[str]) -> Interpreter | None:
    program = "import platform, sys; print('%d.%d' % sys.version_info[:2], platform.machine())"
    try:
        version, machine = _run([*command, "-c", program]).split()
    except (OSError, subprocess.CalledProcessError):  # no such file, or a shim without its interpreter
        return None
    return Interpreter(tuple(command), version, machine)


def smoke(wheel: Path, interpreter: Interpreter) -> str:
    """Install a wheel for an interpreter and run it; return a line of results."""
    with tempfile.TemporaryDirectory() as folder:
        if interpreter.has_venv:
            _run([UV, "venv", "--quiet", "--no-project", "--python", interpreter.command[0], f"{folder}/venv"])
            _run([UV, "pip", "install", "--quiet", "--compile-bytecode", str(wheel)], VIRTUAL_ENV=f"{folder}/venv")
            (packages,) = Path(folder, "venv").glob("lib/python*/site-packages")
            said = _run([f"{folder}/venv/bin/python", str(SMOKE)], cwd=Path(folder))
        else:
            packages = Path(folder, "packages")
            target = ["--target", str(packages), "--python-version", interpreter.version, "--only-binary", ":all:"]
            target += ["--python-platform", f"{interpreter.machine}-manylinux_2_28"]
            _run([UV, "pip", "install", "--quiet", *target, str(wheel)])
            said = _run([*interpreter.command, str(SMOKE)], cwd=Path(folder), PYTHONPATH=str(packages))
        result = json.loads(said)
        if Path(result["from"]).resolve() != packages.resolve() or result["numba"]:
            raise WheelError(f"this is not the installed wheel alone: {result}")
        megabytes = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file()) / 1e6
        if interpreter.has_venv and megabytes > INSTALLED_MB_MAX:
            raise WheelError(f"the installation has {megabytes:.0f} MB, more than {INSTALLED_MB_MAX}")
        return f"kernels {result['variant']}, full scan {result['scan_s']} s, installation {megabytes:.0f} MB"


def _run(command: Sequence[str], cwd: Path | None = None, **variables: str) -> str:
    """Run a command without the variables that would show it this source tree; return its output."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "SHALE_KERNELS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | variables
    done = subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def check(machine: str, pythons: Sequence[Interpreter]) -> None:
    """Build and check the wheel of one machine; print a line for each version of Python."""
    wheel = build(machine)
    check_tag(wheel, machine)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        check_module(Path(archive.extract(f"shale/kernels/{MODULE_PATH.name}", folder)))
    print(f"{wheel.relative_to(REPOSITORY)}: tag and symbols are right", flush=True)
    suitable = [each for each in pythons if each.machine == machine]
    for interpreter in suitable:
        print(f"  {machine}, Python {interpreter.version}: {smoke(wheel, interpreter)}", flush=True)
    for version in sorted(set(PYTHONS) - {each.version for each in suitable}):
        print(f"  {machine}, Python {version}: no interpreter here; checked by symbols only", flush=True)


def main() -> None:
    """Check the wheels of all machines; exit with an error if one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.wheels")
    parser.add_argument("--interpreter", action="append", default=[], metavar="COMMAND", help="another Python to run")
    parser.add_argument("--machine", action="append", choices=sorted(VARIANTS), help="only this one's wheel")
    arguments = parser.parse_args()
    try:
        pythons = list(interpreters(arguments.interpreter))
        for machine in arguments.machine or sorted(VARIANTS, key=lambda name: name != platform.machine()):
            check(machine, pythons)
    except WheelError as error:
        raise SystemExit(f"wheels: {error}") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"wheels: {shlex.join(error.cmd)} failed:\n{error.output}{error.stderr}") from error


if __name__ == "__main__":
    main()
