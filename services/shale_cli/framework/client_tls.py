"""TLS of commands that ask daemons: variables name the files."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shale.client.tls import TlsFiles

CA_FILE = "SHALE_CA_FILE"
CERT_FILE = "SHALE_CLIENT_CERT_FILE"
KEY_FILE = "SHALE_CLIENT_KEY_FILE"


def tls_files() -> "TlsFiles":
    """Return the files that the environment names."""
    return {
        "ca_file": os.environ.get(CA_FILE) or None,
        "cert_file": os.environ.get(CERT_FILE) or None,
        "key_file": os.environ.get(KEY_FILE) or None,
    }
