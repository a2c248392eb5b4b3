"""Checksums of a release, for ``sha256sum --check``, and their signature, for ``ssh-keygen -Y verify``."""

import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

NAME = "SHA256SUMS"
NAMESPACE = "shale-release"
"""The purpose that a signature is made for: one for another purpose does not verify."""


IDENTITY = "maintainers"
"""The name of the signers in the file of their public keys."""


def write_checksums(folder: Path, files: Iterable[Path]) -> Path:
    """Write the checksums of files of a folder, in the order of their names."""
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(files)]
    path = folder / NAME
    path.write_text("".join(lines))
    return path


def sign(checksums: Path, key: Path) -> Path:
    """Sign the checksums with an OpenSSH key.

    Raises:
        subprocess.CalledProcessError: ``ssh-keygen`` refuses the key.
    """
    signature = checksums.with_name(f"{checksums.name}.sig")
    signature.unlink(missing_ok=True)
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(checksums)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return signature
