"""TLS of clients: whom they trust, and the certificate that they show."""

import ssl
from typing import TypedDict

from shale.errors import InvalidRequestError


class TlsFiles(TypedDict, total=False):
    """The files of the TLS of a client, PEM; each may be left out.

    ``ca_file``: authorities that are trusted instead of the usual ones; ``cert_file``: a certificate that the client
    shows, and ``key_file`` its private key.
    """

    ca_file: str | None
    cert_file: str | None
    key_file: str | None


def client_tls(
    ca_file: str | None = None, cert_file: str | None = None, key_file: str | None = None
) -> ssl.SSLContext | bool:
    """Return what httpx takes as ``verify``: a context, or ``True`` for its own default.

    Args:
        ca_file: authorities that are trusted, PEM; by default those that httpx trusts.
        cert_file: a certificate that the client shows, PEM.
        key_file: its private key; by default it is in ``cert_file``.

    Raises:
        InvalidRequestError: a file cannot be used; names it.
    """
    if ca_file is None and cert_file is None:
        return True
    where = ca_file
    try:
        context = ssl.create_default_context(cafile=ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if cert_file is not None:
            where = cert_file
            context.load_cert_chain(cert_file, key_file, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise InvalidRequestError(f"{where}: cannot be used for TLS: {reason}") from error
    return context
