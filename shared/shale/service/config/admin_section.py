"""The settings of the admin port (docs/how-to/tokens.md)."""

from pydantic import Field

from shale.service.access import Rates, Role
from shale.service.config.access.tokens import Token
from shale.service.config.section import Section
from shale.service.config.sections import Port


class AdminSection(Section):
    """The admin port: metrics, health and administration."""

    host: str = Field(default="127.0.0.1", description="The address to listen on; 0.0.0.0: all addresses.")
    port: Port = Field(default=9464, description="The port to listen on; 0: any free port.")
    bearer_token: Token | None = Field(
        default=None, description="Token of this port with the role admin, for /v1/admin/…; best as a secret file."
    )
    require_token: bool = Field(
        default=False,
        description="Refuse calls below /v1/admin/ with 403 until a token is set for this port; the image sets it. "
        "A token of a data port has the same effect.",
    )
    requests_per_second: float = Field(
        default=0.0,
        ge=0.0,
        allow_inf_nan=False,
        description="Calls below /v1/admin/ per second of each token; more get 429 with Retry-After. 0: no limit.",
    )

    def rates(self) -> dict[Role, Rates]:
        """Return the limit, which is the same for the tokens of all roles."""
        return dict.fromkeys(Role, Rates(self.requests_per_second))
