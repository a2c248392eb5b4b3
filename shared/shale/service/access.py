"""Who may do what on a port, and how much: bearer tokens with roles and quotas.

Roles are for HTTP, RESP, the admin port and the console.  A role includes those below it: ``read`` < ``write`` <
``admin``.  A token has one quota for the data ports, HTTP and RESP, and another one for the admin port.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from math import ceil
from secrets import compare_digest
from typing import NamedTuple

from pydantic import SecretStr

from shale.core.address_limits import FailedAttempts
from shale.core.token_bucket import TokenBucket
from shale.core.token_hash import digest_of_setting, digest_of_token
from shale.env import Clock
from shale.telemetry.events import Event
from shale.telemetry.instruments import Counter
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

log = get_logger("access")

RETRY_AFTER_MAX_S = 86_400
ADMIN_SETTING = "admin.requests_per_second"


class Role(IntEnum):
    """What a token allows: reads, also of the state of the process; writes of rows; administration."""

    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def label(self) -> str:
        """The name of the role in settings and messages."""
        return self.name.lower()


TokenRole = tuple[SecretStr, Role]
"""A token or the hash of one, and its role."""


class Rates(NamedTuple):
    """What a token may send per second; 0: as much as it likes."""

    requests: float = 0.0
    size_bytes: float = 0.0


UNLIMITED = Rates()


class Quota:
    """The buckets of one token, or of all clients without a token whose calls need one role."""

    __slots__ = ("_bytes", "_clock", "_refusals", "_requests", "_setting", "role")

    def __init__(self, role: Role, rates: Rates, clock: Clock, refusals: Counter, setting: str) -> None:
        now_s = clock.monotonic_s()
        self.role = role
        self._setting = setting
        self._clock = clock
        self._refusals = refusals
        self._requests = TokenBucket(rates.requests, now_s)
        self._bytes = TokenBucket(rates.size_bytes, now_s)

    def admit(self) -> int | None:
        """Count a request and return ``None``; refuse it if a bucket is empty.

        Returns:
            For a refused request, the whole seconds after which it may be sent again, at least 1.
        """
        now_s = self._clock.monotonic_s()
        requests_s, bytes_s = self._requests.wait_s(now_s), self._bytes.wait_s(now_s)
        if requests_s is None and bytes_s is None:
            self._requests.take(1)
            return None
        self._refusals.inc()
        return max(1, ceil(min(RETRY_AFTER_MAX_S, max(requests_s or 0.0, bytes_s or 0.0))))

    def refusal(self, pause_s: int) -> str:
        """Return the message to a client whose request was refused."""
        return f"{self._setting} is used up, and nothing was done: try again after {pause_s} s"

    def take_bytes(self, size_bytes: int) -> None:
        """Count received bytes of admitted requests."""
        self._bytes.take(size_bytes)

    def set_rates(self, rates: Rates) -> None:
        """Change the rates."""
        now_s = self._clock.monotonic_s()
        self._requests.set_rate(rates.requests, now_s)
        self._bytes.set_rate(rates.size_bytes, now_s)


class Quotas:
    """The quotas of all tokens of one process, for the data ports or for the admin port.

    ``is_limiting``: whether any role has a limit; without one, ports need not ask for the quota of a token.
    """

    def __init__(
        self, clock: Clock, metrics: Metrics, rates: Mapping[Role, Rates] | None = None, *, is_admin: bool = False
    ) -> None:
        self._clock = clock
        name = "shale_admin_quota_refusals_total" if is_admin else "shale_quota_refusals_total"
        self._refusals = {role: metrics.counter(name, role=role.label) for role in Role}
        self._settings = {role: ADMIN_SETTING if is_admin else f"quotas.{role.label}" for role in Role}
        self._rates = rates or {}
        self._quotas: dict[tuple[Role, bytes | None], Quota] = {}
        self.is_limiting = _any_limit(self._rates)

    def of(self, role: Role, token: bytes | None) -> Quota:
        """Return the quota of a known token with its role; without a token, that of the role which the call needs."""
        quota = self._quotas.get((role, token))
        if quota is None:
            rates = self._rates.get(role, UNLIMITED)
            quota = Quota(role, rates, self._clock, self._refusals[role], self._settings[role])
            self._quotas[role, token] = quota
        return quota

    def replace(self, rates: Mapping[Role, Rates]) -> None:
        """Use these rates from now on, after a reload of the settings; what was used stays used."""
        self._rates = rates
        self.is_limiting = _any_limit(rates)
        for quota in self._quotas.values():
            quota.set_rates(rates.get(quota.role, UNLIMITED))


class FailureLimit:
    """The limit of attempts without a valid token, of all ports of a process."""

    def __init__(self, clock: Clock, metrics: Metrics, per_minute: int) -> None:
        self._clock = clock
        self._attempts = FailedAttempts(per_minute)
        self._refusals = metrics.counter("shale_auth_refusals_total")

    def failed(self, address: str) -> int | None:
        """Count an attempt; return ``None``, or the whole seconds after which the client may try again."""
        pause_s = self._attempts.failed(address, self._clock.monotonic_s())
        if pause_s is not None:
            self._refusals.inc()
        return pause_s


class AccessTokens:
    """The tokens of one port, their quotas, and the limit of failed attempts; ``None``: no limits.

    ``settings``: names of the settings of the tokens.
    ``certificate_required``: a request also needs a certificate of its client, which the handshake did not ask for.
    ``is_local``: only this machine reaches the port, so that without tokens its requests must name this machine.

    A port without tokens is open, so that every request may do everything, unless it is ``required`` to have one: then
    no request may do anything.
    """

    __slots__ = ("_required", "_settings", "_tokens", "certificate_required", "failures", "is_local", "quotas")

    def __init__(
        self,
        tokens: Iterable[TokenRole] = (),
        *,
        settings: Sequence[str] = ("tokens",),
        required: bool = False,
        quotas: Quotas | None = None,
        failures: FailureLimit | None = None,
        certificate_required: bool = False,
        is_local: bool = False,
    ) -> None:
        self.quotas = quotas
        self.is_local = is_local
        self.certificate_required = certificate_required
        self.failures = failures
        self._tokens = _digests(tokens)
        self._required = required
        self._settings = tuple(settings)

    @property
    def is_open(self) -> bool:
        """Whether requests need no token."""
        return not self._tokens and not self._required

    @property
    def is_closed(self) -> bool:
        """Whether a token is required and none is set, so that no request is allowed."""
        return not self._tokens and self._required

    def role_of(self, token: bytes) -> Role | None:
        """Return the highest role of a token; ``None`` if it is unknown.

        The time depends neither on which token matches nor on where a wrong one differs.  Digests are compared, so the
        hash of a token is no token.
        """
        found, digest = 0, digest_of_token(token)
        for known, role in self._tokens:
            found = max(found, compare_digest(digest, known) * role)
        return Role(found) if found else None

    def replace(self, tokens: Iterable[TokenRole], *, required: bool = False) -> Sequence[str]:
        """Use these tokens from now on, after a reload of the settings.

        No tokens do not open a port that had some: a missing secret file would expose the database.  They close a port
        that requires one, and another port keeps the old ones until a restart.

        Returns:
            The settings of old tokens that stay valid.
        """
        self._required = self._required or required
        new = _digests(tokens)
        if new or self._required or not self._tokens:
            self._tokens = new
            return ()
        log.warning(
            Event.AUTH_TOKENS_KEPT,
            key=self._settings,
            error="no token is left for the port, so the old ones stay valid: set another one, or restart",
        )
        return self._settings


def _digests(tokens: Iterable[TokenRole]) -> tuple[tuple[bytes, Role], ...]:
    return tuple((digest_of_setting(token.get_secret_value()), role) for token, role in tokens)


def _any_limit(rates: Mapping[Role, Rates]) -> bool:
    return any(each != UNLIMITED for each in rates.values())
