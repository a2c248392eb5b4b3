"""Where Java is: Spark's driver and executors are Java programs, and pip brings Spark but no Java.

A usable Java is version 17 or later and has the module ``jdk.incubator.vector``, which Spark asks for at its start.
Both stand in the file ``release`` of every Java home, so that nothing has to be started to find out.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shale.errors import InvalidRequestError
from shale_spark.java_packages import install_command

VERSION_MIN = 17
PREFERRED = (17, 21)
"""The versions Spark 4 is tested with; a later one is taken if there is no other."""

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
        """Whether Spark runs on it.  A home that does not list its modules is believed to have all."""
        return self.version >= VERSION_MIN and (not self.modules or MODULE in self.modules)


def require_java() -> JavaHome:
    """The Java that Spark shall use: ``JAVA_HOME``, else the one on PATH, else the best that is installed.

    Raises:
        InvalidRequestError: there is none; names the command that installs one on this system.
    """
    found = tuple(installed(os.environ))
    usable = next((home for home in found if home.is_usable), None)
    if usable is None:
        raise InvalidRequestError(missing_message(found, install_command()))
    return usable


def installed(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[JavaHome]:
    """Every Java that can be found, the most wanted first; ``root`` is where the system's own places begin."""
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
    """What the file ``release`` of a Java home says; ``None`` where there is no Java."""
    # On a Mac `java` on the PATH is a stub outside every home; the real ones are listed.
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
    """What to say when no Java can be used."""
    if not found:
        seen = "none is installed"
    else:
        seen = "found " + ", ".join(f"{home.path} (Java {home.version})" for home in dict.fromkeys(found))
    return f"Spark needs Java {VERSION_MIN} or later, with the module {MODULE}, and {seen}; install one with: {command}"
