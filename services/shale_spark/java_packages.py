"""How a Java for Spark is installed on this system: the commands of its package manager, as pure values."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

NOWHERE = "the package manager of your system, or from https://adoptium.net"


@dataclass(frozen=True, slots=True)
class Installation:
    """What to run.

    Args:
        refresh: fetches the lists of packages first; empty where installing does that.
        install: without questions.
    """

    refresh: tuple[str, ...]
    install: tuple[str, ...]
    needs_root: bool = True

    def told(self, *, is_root: bool) -> str:
        """The one command that a person types."""
        return " ".join(("sudo", *self.install) if self.needs_root and not is_root else self.install)


def installation(has: Callable[[str], object], os_release: Mapping[str, str]) -> Installation | None:
    """How this system installs a Java, or ``None`` if nobody here knows.

    Args:
        has: whether there is a program of this name.
        os_release: what the system says of itself.
    """
    if has("apt-get"):
        install = ("apt-get", "install", "-y", "--no-install-recommends", debian_package(os_release))
        return Installation(("apt-get", "-qq", "update"), install)
    if has("dnf"):
        return Installation((), ("dnf", "install", "-y", "java-21-openjdk-headless"))
    if has("apk"):
        return Installation((), ("apk", "add", "openjdk17-jre-headless"))
    if has("brew"):
        return Installation((), ("brew", "install", "openjdk@17"), needs_root=False)
    return None


def debian_package(os_release: Mapping[str, str]) -> str:
    """Debian's or Ubuntu's package: each release has one Java that it maintains for its whole life."""
    # Testing releases have no number, and others may have a word.
    number = re.match(r"\d+", os_release.get("VERSION_ID", ""))
    major = 0 if number is None else int(number[0])
    has_21 = {"debian": 13, "ubuntu": 24}.get(os_release.get("ID", ""), sys.maxsize)
    return f"openjdk-{21 if major >= has_21 else 17}-jre-headless"


def here() -> Installation | None:
    """How the system of this process does it."""
    return installation(shutil.which, _os_release(Path("/etc/os-release")))


def install_command() -> str:
    """The one command that installs a Java for Spark on this system."""
    found = here()
    return NOWHERE if found is None else found.told(is_root=os.geteuid() == 0)


def _os_release(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    lines = (line.partition("=") for line in file.read_text(encoding="utf-8").splitlines())
    return {name: value.strip('"') for name, _, value in lines}
