"""What is inside the packages of a release: a wheel is whole, and its sources are those of the source distribution."""

import base64
import csv
import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

IMPORTS = ("shale", "shale_cli", "shale_compactor", "shale_gc", "shale_reader", "shale_spark", "shale_writer")
"""The packages that a wheel installs; there is no vendored one."""
COMPILED = "shale/kernels/_compiled.abi3.so"
"""The only file of a wheel that is not a source: the build makes it from the kernels."""


def wheel_problems(wheel: Path) -> Iterator[str]:
    """Yield what is wrong with a wheel by its own record."""
    files = wheel_files(wheel)
    (info,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    recorded = dict(_record(files[f"{info}/RECORD"]))
    for name, data in sorted(files.items()):
        if name != f"{info}/RECORD" and recorded.pop(name, None) != _record_hash(data):
            yield f"{wheel.name}: {name} is not what its record says"
    recorded.pop(f"{info}/RECORD", None)
    if recorded:
        yield f"{wheel.name} lacks {', '.join(sorted(recorded))}"
    tops = {name.split("/")[0] for name in files} - {info}
    if tops - set(IMPORTS):
        yield f"{wheel.name} installs {', '.join(sorted(tops - set(IMPORTS)))}, which the components do not name"


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def _record(data: bytes) -> Iterator[tuple[str, str]]:
    for name, digest, _ in csv.reader(io.StringIO(data.decode())):
        yield name, digest


def _record_hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"


def source_files(archive: Path) -> dict[str, bytes]:
    """Return the files of a source distribution by name, without its first folder."""
    with tarfile.open(archive) as tar:
        members = [each for each in tar.getmembers() if each.isfile()]
        opened = ((each, tar.extractfile(each)) for each in members)
        return {str(PurePosixPath(*PurePosixPath(each.name).parts[1:])): file.read() for each, file in opened if file}


def difference_problems(wheel: Path, sources: Mapping[str, bytes]) -> Iterator[str]:
    """Yield where the modules of a wheel differ from the source distribution."""
    installed = {
        name: data for name, data in wheel_files(wheel).items() if name.split("/")[0] in IMPORTS and name != COMPILED
    }
    by_import = {
        str(PurePosixPath(*PurePosixPath(name).parts[1:])): data
        for name, data in sources.items()
        if name.split("/")[0] in ("shared", "services") and not name.endswith((".so", ".md"))
    }
    for name in sorted(installed.keys() | by_import.keys()):
        if installed.get(name) != by_import.get(name):
            yield f"{wheel.name}: {name} is not that of the source distribution"


def commit_problems(sources: Mapping[str, bytes], committed: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the files of a source distribution that differ from those of the commit."""
    for name, data in sorted(sources.items()):
        if name not in ("PKG-INFO", ".gitignore") and committed.get(name) != data:
            yield f"the source distribution's {name} is not that of the commit"
