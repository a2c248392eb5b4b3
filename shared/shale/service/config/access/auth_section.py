"""The settings of authentication (docs/how-to/tokens.md)."""

from pydantic import Field

from shale.service.config.section import Section


class AuthSection(Section):
    """How ports that other machines reach are protected."""

    insecure: bool = Field(
        default=False,
        description="Let a port that other machines reach take requests without a token and without a certificate of "
        "the client. Otherwise the daemon refuses to listen there.",
    )
