"""The hook that compiles kernels into a wheel: what it needs, and what it says where it cannot."""

import platform
from types import SimpleNamespace
from typing import Any

import pytest

from shale.kernels.compiler import module
from shale.kernels.compiler.hatch_hook import KernelsHook
from tests.paths import REPOSITORY


class App:
    """Takes what the hook says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def display_info(self, message: str) -> None:
        self.said.append(message)

    display_warning = display_info

    def abort(self, message: str) -> None:
        self.said.append(message)
        raise SystemExit(1)


def hook_and_app() -> tuple[KernelsHook, App]:
    app = App()
    metadata: Any = SimpleNamespace()
    return KernelsHook(str(REPOSITORY), {}, None, metadata, "", "wheel", app), app  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_machine_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHALE_WHEEL_MACHINE", raising=False)
    monkeypatch.delenv("CC", raising=False)


@pytest.mark.parametrize(("system", "machine"), [("linux", "riscv64"), ("darwin", "arm64"), ("darwin", "x86_64")])
def test_where_nothing_can_be_compiled_the_wheel_is_plain_python(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    hook, app = hook_and_app()
    data: dict[str, Any] = {"force_include": {}}
    assert hook.dependencies() == []
    hook.initialize("standard", data)
    hook.finalize("standard", data, "")
    assert data == {"force_include": {}}
    assert app.said == [
        f"no kernels are compiled for {system} on {machine}: Shale will run in plain Python, ten to a hundred times "
        "slower"
    ]


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    hook, app = hook_and_app()
    with pytest.raises(SystemExit):
        hook.initialize("standard", {"force_include": {}})
    assert app.said[1].startswith("compiling the kernels needs numba")
    hook.finalize("standard", {}, "")


def test_a_compiler_is_installed_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    hook, _ = hook_and_app()
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/cc")
    assert hook.dependencies() == ["numba>=0.61"]
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert hook.dependencies() == ["numba>=0.61", "ziglang>=0.13"]
    monkeypatch.setenv("SHALE_WHEEL_MACHINE", "aarch64")
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/cc")
    assert hook.dependencies() == ["numba>=0.61", "ziglang>=0.13"]


@pytest.mark.parametrize("chosen", [None, "x86_64"])
def test_only_a_chosen_machine_is_compiled_for_all_its_cpus(
    chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "build", lambda path, machine, **options: asked.append(options))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    if chosen is not None:
        monkeypatch.setenv("SHALE_WHEEL_MACHINE", chosen)
    hook, _ = hook_and_app()
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", data)
    hook.finalize("standard", data, "")
    is_chosen = chosen is not None
    assert asked == [{"portable": is_chosen, "use_zig": is_chosen}]
    assert data["tag"].startswith("cp311-abi3-manylinux_2_17" if is_chosen else "cp311-abi3-linux")
