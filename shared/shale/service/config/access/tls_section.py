"""The settings of TLS (docs/how-to/tls.md)."""

from typing import Self

from pydantic import Field, model_validator

from shale.service.config.section import Section
from shale.service.config.sections import PositiveSeconds


class TlsSection(Section):
    """TLS of all ports: HTTP, RESP and admin.  Changed files are taken without a restart."""

    cert_file: str | None = Field(
        default=None, description="The certificate of the ports, PEM, with its chain; none: no TLS."
    )
    key_file: str | None = Field(
        default=None, description="The private key of the certificate, PEM, without a password."
    )
    client_ca_file: str | None = Field(
        default=None,
        description="Clients need a certificate of one of these authorities, PEM; on the admin port only for calls and "
        "the console, not for health and metrics.",
    )
    ca_file: str | None = Field(
        default=None,
        description="Authorities of the daemons that this one asks, PEM: a standby asks the active writer; none: those "
        "of the system.",
    )
    handshake_timeout: PositiveSeconds = Field(default=10.0, description="Time limit of a handshake.")
    check_interval: PositiveSeconds = Field(default=10.0, description="How often to look for changed files.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file: give both or neither")
        if self.client_ca_file is not None and self.cert_file is None:
            raise ValueError("client_ca_file: clients send a certificate over TLS only: give cert_file and key_file")
        return self

    @property
    def is_on(self) -> bool:
        """Whether the ports have TLS."""
        return self.cert_file is not None

    @property
    def scheme(self) -> str:
        """The scheme of the URLs of the ports."""
        return "https" if self.is_on else "http"
