"""Options of stores."""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from shale.core.lazy_dataclass import dataclass
from shale.core.suggestions import KnownFields
from shale.types import AckAfter, CasMode


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy(KnownFields):
    """How often and how fast to retry (docs/reference/protocol.md 0.3).

    ``retries_max``: of one request; ``None``: no limit.
    ``first_delay_s``, ``delay_cap_s``: delays double from the first to the cap.
    ``fail_fast_auth``: whether refused credentials are an error at once.
    ``timeout_s``: how long one request may take with its retries, and at most 15 s until the store has answered once.
    """

    retries_max: int | None = None
    first_delay_s: float = 0.1
    delay_cap_s: float = 1.0
    fail_fast_auth: bool = False
    timeout_s: float | None = None

    def delay_s(self, retry: int) -> float:
        """Return the delay before retry number ``retry``, counted from 0."""
        return min(math.ldexp(self.first_delay_s, min(retry, 30)), self.delay_cap_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions(KnownFields):
    """How the object stores of a database are reached.

    ``retry``: when requests are repeated.
    ``request_timeout_s``, ``connect_timeout_s``: of one attempt of a request.
    ``part_size_bytes``: of multipart uploads.
    ``config`` and ``client`` are obstore's settings (endpoint, credentials, proxies …) and override the others.
    ``fsync``: whether the directory store waits until data is on the disk.
    ``concurrency``: requests in flight per store.
    ``cas``: how files are created once.  ``two-phase`` is for stores without conditional writes, and needs
    ``transactional_url``, the store of commit records.
    ``ack_after``: when a create of the two-phase mode returns.
    ``reads_environment``: the process that connects adds what its variables ``SHALE_STORE__…`` set.  For options that
    travel to other processes, and so may hold no secrets.
    """

    unknown_hint: ClassVar[str] = "; endpoint, region, credentials and the like are given as config={'endpoint': …}"

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    part_size_bytes: int = 8 * 1024 * 1024
    concurrency: int = 32
    fsync: bool = True
    cas: CasMode = CasMode.NATIVE
    ack_after: AckAfter = AckAfter.COPY
    reads_environment: bool = False
    # Not in the repr: credentials must not reach a log or a traceback.
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    transactional_url: str | None = field(default=None, repr=False)
