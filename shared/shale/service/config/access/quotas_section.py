"""The settings of quotas (docs/how-to/tokens.md)."""

from pydantic import Field

from shale.service.access import Rates, Role
from shale.service.config.section import Section


class QuotaSection(Section):
    """What each token of one role may send to the data ports; clients without a token share one quota."""

    requests_per_second: float = Field(
        default=0.0,
        ge=0.0,
        allow_inf_nan=False,
        description="Requests and commands per second of each token with this role; more are refused. 0: no limit.",
    )
    bytes_per_second: float = Field(
        default=0.0,
        ge=0.0,
        allow_inf_nan=False,
        description="Bytes of request bodies and commands per second of each token with this role; after more, requests"
        " are refused. 0: no limit.",
    )

    def rates(self) -> Rates:
        """Return both limits."""
        return Rates(self.requests_per_second, self.bytes_per_second)


class QuotasSection(Section):
    """Quotas of the tokens of each role, on the HTTP and the Redis port."""

    read: QuotaSection = QuotaSection()
    write: QuotaSection = QuotaSection()
    admin: QuotaSection = QuotaSection()

    def rates(self) -> dict[Role, Rates]:
        """Return the limits of all roles."""
        return {Role.READ: self.read.rates(), Role.WRITE: self.write.rates(), Role.ADMIN: self.admin.rates()}
