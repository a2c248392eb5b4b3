"""The choice of the Java installation, and the error if there is none."""

from pathlib import Path

import pytest

from shale.errors import InvalidRequestError
from shale_spark import prerequisites
from shale_spark.prerequisites import (
    MODULE,
    JavaHome,
    debian_package,
    install_command,
    installation,
    installed,
    missing_message,
    read_home,
)


def make_home(path: Path, version: str, modules: str = f"java.base {MODULE} java.sql") -> Path:
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "java").touch(mode=0o755)
    (path / "release").write_text(f'IMPLEMENTOR="Vendor"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return path


@pytest.mark.parametrize(
    ("version", "modules", "feature", "usable"),
    [
        ("17.0.15", f"java.base {MODULE}", 17, True),
        ("25", f"java.base {MODULE}", 25, True),
        ("11.0.2", f"java.base {MODULE}", 11, False),
        ("1.8.0_392", "", 8, False),
        ("21.0.1", "", 21, True),
        pytest.param("21.0.1", "java.base java.sql", 21, False, id="a trimmed Java, as wheels have it"),
    ],
)
def test_what_a_home_says(tmp_path: Path, version: str, modules: str, feature: int, usable: bool) -> None:
    home = read_home(make_home(tmp_path, version, modules))
    assert home is not None
    assert (home.version, home.is_usable) == (feature, usable)


def test_no_java_is_no_home(tmp_path: Path) -> None:
    assert read_home(tmp_path) is None
    (tmp_path / "release").write_text('NAME="a Linux distribution"\n')
    assert read_home(tmp_path) is None


def test_java_home_comes_first_then_the_path_then_versions_spark_is_tested_with(tmp_path: Path) -> None:
    named = make_home(tmp_path / "named", "21.0.2")
    on_path = make_home(tmp_path / "on_path", "17.0.1")
    for name, version in (("a", "25.0.1"), ("b", "21.0.1"), ("c", "17.0.2"), ("d", "11.0.1")):
        make_home(tmp_path / "usr/lib/jvm" / name, version)
    environ = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert [home.path.name for home in installed(environ, tmp_path)] == ["named", "on_path", "c", "b", "d", "a"]


def test_a_link_on_the_path_leads_to_its_home(tmp_path: Path) -> None:
    home = make_home(tmp_path / "jvm" / "17", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert [found.path for found in installed({"PATH": str(tmp_path / "bin")}, tmp_path)] == [home]


def test_an_old_java_home_does_not_hide_a_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, good = make_home(tmp_path / "old", "8"), make_home(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert prerequisites.require_java().path == good


def test_without_java_one_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "installed", lambda _environ: iter((JavaHome(Path("/old"), 11, frozenset()),)))
    with pytest.raises(InvalidRequestError, match=r"Java 17 or later.*/old \(Java 11\)") as raised:
        prerequisites.require_java()
    assert str(raised.value).endswith(f"install one with: {install_command()}")
    assert "none is installed" in missing_message((), "x")


@pytest.mark.parametrize(
    ("system", "version", "wanted"),
    [
        ("debian", "12", "17"),
        ("debian", "13", "21"),
        ("ubuntu", "22.04", "17"),
        ("ubuntu", "24.04", "21"),
        ("", "", "17"),
        ("kali", "rolling", "17"),
        ("debian", "", "17"),
    ],
)
def test_each_release_has_its_package(system: str, version: str, wanted: str) -> None:
    assert debian_package({"ID": system, "VERSION_ID": version}) == f"openjdk-{wanted}-jre-headless"


@pytest.mark.parametrize(
    ("program", "told_to_root", "told_to_others"),
    [
        ("dnf", "dnf install -y java-21-openjdk-headless", "sudo dnf install -y java-21-openjdk-headless"),
        ("apk", "apk add openjdk17-jre-headless", "sudo apk add openjdk17-jre-headless"),
        ("brew", "brew install openjdk@17", "brew install openjdk@17"),
    ],
)
def test_one_command_for_each_system(program: str, told_to_root: str, told_to_others: str) -> None:
    found = installation(lambda name: name == program, {})
    assert found is not None
    assert found.command_line(is_root=True) == told_to_root
    assert found.command_line(is_root=False) == told_to_others


def test_debian_fetches_its_lists_first() -> None:
    found = installation(lambda name: name in {"apt-get", "brew"}, {"ID": "debian", "VERSION_ID": "13"})
    assert found is not None
    assert found.refresh == ("apt-get", "-qq", "update")
    assert found.command_line(is_root=False).endswith("--no-install-recommends openjdk-21-jre-headless")


def test_an_unknown_system_has_no_installation_command() -> None:
    assert installation(lambda _name: None, {}) is None
