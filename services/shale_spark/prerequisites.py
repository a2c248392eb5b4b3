"""What Spark needs on this machine: the packages of the extra, and Java.

Spark's driver and executors are Java programs, and pip installs Spark without Java.  A usable Java has version 17 or
later and the module ``jdk.incubator.vector``, which Spark loads at its start.  The file ``release`` of every Java home
states both, so the search starts no process.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError

PACKAGES = ("pyspark", "pandas", "pyarrow")
INSTALL = "pip install 'shale[spark]'"


def require_extra(packages: Sequence[str] = PACKAGES) -> None:
    """Return if all Python packages that Spark needs are installed.

    Raises:
        InvalidRequestError: a package is missing; names it and the command that installs it.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InvalidRequestError(f"{' and '.join(missing)}: not installed; install with: {INSTALL}")


VERSION_MIN = 17
PREFERRED = (17, 21)
"""The versions Spark 4 is tested with; a later one is used if there is no other."""

MODULE = "jdk.incubator.vector"
_PLACES = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)
_RELEASE_LINE = re.compile(r'^(JAVA_VERSION|MODULES)="([^"]*)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class JavaHome:
    """One installed Java.  ``version`` is the feature release: 17, 21, …"""

    path: Path
    version: int
    modules: frozenset[str]

    @property
    def is_usable(self) -> bool:
        """Whether Spark runs on it.  A home that does not list its modules counts as complete."""
        return self.version >= VERSION_MIN and (not self.modules or MODULE in self.modules)


def require_java() -> JavaHome:
    """Return the Java that Spark uses: ``JAVA_HOME``, else the one on PATH, else the best that is installed.

    Raises:
        InvalidRequestError: there is none; names the command that installs one on this system.
    """
    found = tuple(installed(os.environ))
    usable = next((home for home in found if home.is_usable), None)
    if usable is None:
        raise InvalidRequestError(missing_message(found, install_command()))
    return usable


def installed(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[JavaHome]:
    """Yield every Java found, the preferred first; ``root`` is where the system's own places begin."""
    named = environ.get("JAVA_HOME")
    if named and (home := read_home(Path(named))) is not None:
        yield home
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path and (home := read_home(Path(on_path).resolve().parent.parent)) is not None:
        yield home
    there = {path.resolve() for place in _PLACES for path in root.glob(place.lstrip("/"))}
    homes = [home for path in sorted(there) if (home := read_home(path)) is not None]
    yield from sorted(homes, key=lambda home: (home.version not in PREFERRED, home.version))


def read_home(path: Path) -> JavaHome | None:
    """Return what the file ``release`` of a Java home says; ``None`` where there is no Java."""
    # On macOS `java` on the PATH is a stub outside every home; the real homes are listed.
    try:
        text = (path / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    said = dict(_RELEASE_LINE.findall(text))
    # Up to Java 8 the feature release is the second number: 1.8.0.
    number = re.match(r"(?:1\.)?(\d+)", said.get("JAVA_VERSION", ""))
    if number is None or not (path / "bin" / "java").is_file():
        return None
    return JavaHome(path, int(number[1]), frozenset(said.get("MODULES", "").split()))


def missing_message(found: tuple[JavaHome, ...], command: str) -> str:
    """Return the error text for a system without a usable Java."""
    if not found:
        seen = "none is installed"
    else:
        seen = "found " + ", ".join(f"{home.path} (Java {home.version})" for home in dict.fromkeys(found))
    return f"Spark needs Java {VERSION_MIN} or later, with the module {MODULE}, and {seen}; install one with: {command}"


MANUAL_SOURCE = "the package manager of your system, or from https://adoptium.net"


@dataclass(frozen=True, slots=True)
class Installation:
    """The commands to run.

    Args:
        refresh: fetches the package lists first; empty where the installation does that.
        install: without questions.
        needs_root: whether both need root.
    """

    refresh: tuple[str, ...]
    install: tuple[str, ...]
    needs_root: bool = True

    def command_line(self, *, is_root: bool) -> str:
        """Return the one command for a person to type."""
        return " ".join(("sudo", *self.install) if self.needs_root and not is_root else self.install)


def installation(has: Callable[[str], object], os_release: Mapping[str, str]) -> Installation | None:
    """Return how this system installs a Java, or ``None`` if no package manager is known.

    Args:
        has: whether there is a program of this name.
        os_release: the fields of ``/etc/os-release``.
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
    """Return the package of Debian or Ubuntu: each release maintains one Java for its whole life."""
    # Testing releases have no number; others may have a word.
    number = re.match(r"\d+", os_release.get("VERSION_ID", ""))
    major = 0 if number is None else int(number[0])
    has_21 = {"debian": 13, "ubuntu": 24}.get(os_release.get("ID", ""), sys.maxsize)
    return f"openjdk-{21 if major >= has_21 else 17}-jre-headless"


def here() -> Installation | None:
    """Return how the system of this process installs a Java."""
    return installation(shutil.which, _os_release(Path("/etc/os-release")))


def install_command() -> str:
    """Return the one command that installs a Java for Spark on this system."""
    found = here()
    return MANUAL_SOURCE if found is None else found.command_line(is_root=os.geteuid() == 0)


def _os_release(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    lines = (line.partition("=") for line in file.read_text(encoding="utf-8").splitlines())
    return {name: value.strip('"') for name, _, value in lines}
