"""A release of a few bytes, with the same files as a real one."""

import base64
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from zipfile import ZipFile

from deploy.release.checksums import IDENTITY, sign, write_checksums
from deploy.release.lock import locked_packages
from deploy.release.provenance import INPUTS, statement, write_statement

VERSION = "1.2"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOCK = f"anyio==4.14 \\\n    --hash=sha256:{'a' * 64} \\\n    --hash=sha256:{'b' * 64}\n    # via shale\nh_11==0.16 ; python_version < '4' \\\n    --hash=sha256:{'c' * 64}\n"  # fmt: skip  # noqa: E501
SOURCES = {
    "shared/shale/__init__.py": b"x = 1\n",
    "services/shale_cli/__init__.py": b"",
    "pyproject.toml": b"[project]\n",
}
WHEEL = "shale-1.2-py3-none-any.whl"
METADATA = "Name: shale\nVersion: 1.2\nRequires-Dist: anyio>=4\nRequires-Dist: H.11; extra == 'server'\nRequires-Dist: x; extra == 'dev'\n"  # fmt: skip  # noqa: E501
SBOM, STATED, SDIST = "shale-1.2.cdx.json", "shale-1.2.provenance.json", "shale-1.2.tar.gz"
FILES = (WHEEL, SDIST, SBOM, STATED, "shale-1.2.md", "requirements.lock")


def wheel_bytes(files: Mapping[str, bytes], recorded: Mapping[str, bytes] | None = None) -> bytes:
    """Return a wheel; ``recorded`` is what its record is made of, if it lies."""
    info = "shale-1.2.dist-info"
    whole = {**files, f"{info}/METADATA": METADATA.encode()}
    lines = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in {**whole, **(recorded or {})}.items()
    ]
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, data in {**whole, f"{info}/RECORD": "".join([*lines, f"{info}/RECORD,,\n"]).encode()}.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def source_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return a source distribution."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"shale-1.2/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def installed(sources: Mapping[str, bytes] = SOURCES) -> dict[str, bytes]:
    """Return the files that a wheel installs from sources."""
    return {name.split("/", 1)[1]: data for name, data in sources.items() if "/" in name}


def components(lock: str = LOCK) -> str:
    """Return the components of a lock."""
    return json.dumps(
        {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": {"type": "application", "name": "shale", "version": VERSION}},
            "components": [
                {
                    "type": "library",
                    "name": each.name,
                    "version": each.version,
                    "externalReferences": [
                        {
                            "type": "distribution",
                            "url": "https://example.invalid",
                            "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(each.hashes)],
                        }
                    ],
                }
                for each in locked_packages(lock)
            ],
        }
    )


class SmallRelease:
    """A release in a folder, and the key of its maintainers.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "release"
        self.folder.mkdir()
        self._checkout = folder / "checkout"
        self._checkout.mkdir()
        for name in INPUTS:
            (self._checkout / name).write_text(LOCK if name == "requirements.lock" else name)
        self.key = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        self.signers = folder / "signers"
        self.signers.write_text(f"{IDENTITY} {self.key.with_suffix('.pub').read_text()}")
        (self.folder / WHEEL).write_bytes(wheel_bytes(installed()))
        (self.folder / SDIST).write_bytes(source_bytes(SOURCES))
        (self.folder / SBOM).write_text(components())
        (self.folder / "shale-1.2.md").write_text("- new\n")
        (self.folder / "requirements.lock").write_text(LOCK)
        self.state()
        self.sum_up()
        sign(self.folder / "SHA256SUMS", self.key)

    def state(self) -> None:
        """Write the provenance of what is there."""
        files = [self.folder / name for name in FILES if name != STATED]
        now = datetime(2026, 1, 31, tzinfo=UTC)
        times = {"began": now, "ended": now}
        write_statement(
            self.folder / STATED, statement(files, version=VERSION, commit=COMMIT, repository=self._checkout, **times)
        )

    def sum_up(self) -> None:
        """Write the checksums of what is there, as one who has no key could."""
        write_checksums(self.folder, [self.folder / name for name in FILES])

    def forge(self, name: str, data: bytes) -> None:
        """Replace a file, and make checksums and provenance fit."""
        (self.folder / name).write_bytes(data)
        if name != STATED:
            self.state()
        self.sum_up()
