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
    failures_per_minute: int = Field(
        default=60,
        ge=0,
        description="Requests and AUTH commands of one address without a valid token, per minute, that are answered in "
        "full; more get 429 with Retry-After. 0: no limit.",
    )
