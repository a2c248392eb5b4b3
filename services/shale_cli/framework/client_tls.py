"""TLS of commands that ask daemons: options, or variables, name the files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shale.client.tls import TlsFiles

CA_FILE = "SHALE_CA_FILE"
CERT_FILE = "SHALE_CLIENT_CERT_FILE"
KEY_FILE = "SHALE_CLIENT_KEY_FILE"

CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", envvar=CA_FILE, help="Trusted CAs, PEM."),
]
ClientCertFile = Annotated[
    Path | None,
    typer.Option("--client-cert-file", envvar=CERT_FILE, help="Certificate to show, PEM."),
]
ClientKeyFile = Annotated[
    Path | None,
    typer.Option("--client-key-file", envvar=KEY_FILE, help="Its key, PEM."),
]


def tls_files(ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> "TlsFiles":
    """Return the values of the three options as arguments of a client.

    A file is read when a connection needs it, so that one that is absent concerns nothing else.
    """
    return {
        "ca_file": None if ca_file is None else str(ca_file),
        "cert_file": None if cert_file is None else str(cert_file),
        "key_file": None if key_file is None else str(key_file),
    }
