"""Compiles a part of the kernels to an object file for one CPU: ``python -m shale.kernels.compiler.objects``.

Numba reads the CPU from its environment when it is imported, so each CPU is compiled in a process of its own
(``compile_for``).  It also writes the IR of another machine with the same layout of data, which LLVM compiles there.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from shale.core.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TargetCpu:
    """A CPU to compile for.

    ``name`` and ``features`` are LLVM's.  ``triple``: of its machine; ``variant`` distinguishes its functions, which
    run only on a CPU that has what it ``requires``.
    """

    variant: str
    triple: str
    name: str
    features: str = ""
    requires: tuple[str, ...] = ()


X86_V3 = TargetCpu("v3", "x86_64-unknown-linux-gnu", "x86-64-v3", "+pclmul", ("avx2", "bmi", "bmi2", "fma", "pclmul"))
X86_V2 = TargetCpu("v2", "x86_64-unknown-linux-gnu", "x86-64-v2")
AARCH64 = TargetCpu("base", "aarch64-unknown-linux-gnu", "generic", "+neon")
CPUS = {cpu.name: cpu for cpu in (X86_V3, X86_V2, AARCH64)}
READS, REST = "reads", "rest"
PARTS = (READS, REST)
"""Of the kernels: each takes about half of the time, and they share few functions."""
_PACKAGES_OF_READS = frozenset({"scan", "point_lookup"})


@dataclass(frozen=True, slots=True)
class Symbol:
    """The C function of a kernel: ``symbol(parameters) -> result``, see ``source.jit.Kernel``."""

    name: str
    symbol: str
    result: str
    parameters: tuple[str, ...]
    holds_lock: bool


def compile_for(cpu: TargetCpu, part: str, object_path: Path) -> list[Symbol]:
    """Compile the kernels of a part into an object file, in a process of its own.

    Raises:
        subprocess.CalledProcessError: a kernel does not compile; numba's error is on stderr.
    """
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_OPT": "3"}
    if cpu.triple.startswith("x86_64"):
        environment |= {"NUMBA_CPU_NAME": cpu.name, "NUMBA_CPU_FEATURES": cpu.features}
    environment["NUMBA_DISABLE_JIT"] = "0"
    # A build environment has no installed package, and pip's is a folder of this variable.
    folders = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    command = [sys.executable, "-m", "shale.kernels.compiler.objects", cpu.name, part, str(object_path)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return [Symbol(**{**each, "parameters": tuple(each["parameters"])}) for each in json.loads(done.stdout)]


def _numba_signature(kernel: Any) -> Any:
    from numba import types

    of = {"i64": (types.int64,), "u64": (types.uint64,), "object": (types.int64,), "key": (types.int64, types.int64)}
    parameters = [each for parameter in kernel.parameters for each in of[parameter]]
    result = {"i64": types.int64, "count": types.int64, "bool": types.boolean}.get(kernel.result, types.void)
    if kernel.result == "answer":
        parameters.append(types.int64)
    return result(*parameters)


def part_of(kernel: Any) -> str:
    """Return the part that a kernel belongs to."""
    package = kernel.function.__module__.removeprefix("shale.kernels.source.").partition(".")[0]
    return READS if package in _PACKAGES_OF_READS else REST


def _modules(part: str) -> list[tuple[Any, str, str]]:
    """Compile every kernel of a part; return it with its LLVM module as text and the name of its C function."""
    from numba import cfunc

    import shale.kernels.source.all_kernels  # noqa: F401 - fills KERNELS
    from shale.kernels.source.jit import KERNELS

    compiled = []
    for kernel in sorted(KERNELS, key=lambda kernel: kernel.name):
        if part_of(kernel) != part:
            continue
        function = cfunc(_numba_signature(kernel), error_model="numpy", nogil=True)(kernel.function)
        compiled.append((kernel, str(function._library._final_module), function._wrapper_name))
    return compiled


def _link(modules: list[tuple[Any, str, str]], cpu: TargetCpu) -> tuple[Any, list[Symbol]]:
    """Return one LLVM module that exports the C functions only, under names with the variant."""
    from llvmlite import binding

    linked = None
    symbols = []
    triple = f'target triple = "{cpu.triple}"'
    for kernel, text, wrapper in modules:
        module = binding.parse_assembly(re.sub(r"^target triple = .*$", triple, text, flags=re.MULTILINE))
        # Each module keeps its own copies of the helpers, so that nothing but the C functions is exported.
        for value in (*module.functions, *module.global_variables):
            if not value.is_declaration and value.name != wrapper:
                value.linkage = "internal"
        symbol = f"shale_{cpu.variant}_{kernel.name}"
        function = module.get_function(wrapper)
        function.name, function.visibility = symbol, "hidden"
        if linked is None:
            linked = module
        else:
            linked.link_in(module)
        symbols.append(Symbol(kernel.name, symbol, kernel.result, kernel.parameters, kernel.holds_lock))
    return linked, symbols


def main() -> None:
    """Compile for a CPU a part of the kernels into a file, which are the arguments; print the symbols."""
    from llvmlite import binding

    cpu, part, path = CPUS[sys.argv[1]], sys.argv[2], Path(sys.argv[3])
    modules = _modules(part)
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    linked, symbols = _link(modules, cpu)
    machine = binding.Target.from_triple(cpu.triple).create_target_machine(
        cpu=cpu.name, features=cpu.features, opt=3, reloc="pic", codemodel="default"
    )
    path.write_bytes(machine.emit_object(linked))
    fields = ("name", "symbol", "result", "parameters", "holds_lock")
    print(json.dumps([{field: getattr(symbol, field) for field in fields} for symbol in symbols]))


if __name__ == "__main__":
    main()
