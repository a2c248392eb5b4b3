"""The extension module of the kernels: how it is built, what it refuses, and life without it."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from shale.kernels.columns import address_of
from shale.kernels.compiler import stub
from shale.kernels.compiler.glue import module_source
from shale.kernels.compiler.module import BuildError, build, is_current
from shale.kernels.compiler.objects import PARTS, X86_V2, X86_V3, Symbol, part_of
from shale.kernels.dispatch import compiled, use_kernels

pytestmark = pytest.mark.skipif(not use_kernels(), reason="there are no compiled kernels")


def test_the_stub_has_the_signatures_of_the_sources() -> None:
    assert stub.STUB_PATH.read_text() == stub.stub()


def test_the_module_has_every_kernel_of_the_present_sources() -> None:
    import shale.kernels.source.all_kernels  # noqa: F401 - fills KERNELS
    from shale.kernels.source.jit import KERNELS

    assert is_current()
    assert {kernel.name for kernel in KERNELS} <= set(dir(compiled))
    assert len({kernel.name for kernel in KERNELS}) == len(KERNELS)


def test_wrong_arguments_are_refused() -> None:
    columns = np.zeros(8, np.int64)
    assert compiled.is_ascending(address_of(columns), np.int64(0)) is True
    with pytest.raises(TypeError, match="is_ascending takes 2 arguments, not 1"):
        compiled.is_ascending(address_of(columns))  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        compiled.is_ascending(address_of(columns), "1")  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        compiled.is_ascending(address_of(columns), 2**63)
    with pytest.raises(OverflowError):
        compiled.lookup(b"k", -1, 0, 0, 0)
    with pytest.raises(TypeError):
        compiled.lookup_value(bytearray(b"k"), 0)  # type: ignore[arg-type]


def test_the_module_needs_no_header_of_python() -> None:
    """Not every installation of Python has them, and images have none."""
    kernel = Symbol("is_ascending", "shale_v2_is_ascending", "bool", ("i64", "i64"), holds_lock=False)
    source = module_source([(X86_V2, [kernel])], digest="0")
    assert set(re.findall(r"#include <(.*)>", source)) == {"stddef.h", "stdint.h", "cpuid.h"}


def test_a_module_for_one_cpu_is_refused_by_another_one() -> None:
    kernel = Symbol("is_ascending", "shale_v3_is_ascending", "bool", ("i64", "i64"), holds_lock=False)
    alone = module_source([(X86_V3, [kernel])], digest="0")
    assert "if (!may_run_v3()) return PyErr_Format(PyExc_ImportError" in alone
    assert "ImportError," not in module_source([(X86_V3, [kernel]), (X86_V2, [kernel])], digest="0")


def test_the_kernels_are_compiled_in_parts() -> None:
    import shale.kernels.source.all_kernels  # noqa: F401 - fills KERNELS
    from shale.kernels.source.jit import KERNELS

    assert {part_of(kernel) for kernel in KERNELS} == set(PARTS)


def test_an_unknown_machine_is_named() -> None:
    with pytest.raises(BuildError, match="no kernels are compiled for riscv64, only for x86_64, aarch64"):
        build(machine="riscv64")


def test_every_kind_of_parameter_and_result_is_used() -> None:
    """What no kernel uses would be code without a test."""
    import shale.kernels.source.all_kernels  # noqa: F401 - fills KERNELS
    from shale.kernels.source.jit import KERNELS, PARAMETERS, RESULTS

    assert {kernel.result for kernel in KERNELS} == RESULTS
    assert {parameter for kernel in KERNELS for parameter in kernel.parameters} == PARAMETERS
    assert {*Symbol.__dataclass_fields__} >= {"name", "result", "parameters"}


WITHOUT_KERNELS = """
import asyncio, logging, shale
async def main():
    for _ in range(2):
        async with shale.Db.open("memory:///db") as db:
            for number in range(300):
                await db.put(b"%03d" % number, b"v")
            await db.flush()
            print(len([row async for row in db.scan()]), await db.get(b"007"))
logging.basicConfig()
asyncio.run(main())
"""


def test_without_the_module_everything_works_and_says_so_once() -> None:
    environment = {**os.environ, "SHALE_KERNELS": "off", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERNELS], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "300 b'v'\n300 b'v'\n"
    assert done.stderr.count("kernels.missing") == 1


def test_loading_the_kernels_loads_no_compiler() -> None:
    probe = "import sys, shale.kernels.dispatch; print({'numba', 'llvmlite'} & set(sys.modules) or 'none')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "none\n"
