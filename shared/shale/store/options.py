"""How to talk to a store: what settings and callers may choose."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to insist (docs/protocol.md 0.3).  Delays are in seconds and double from first to cap."""

    retries_max: int | None = None
    first_delay_s: float = 0.1
    delay_cap_s: float = 1.0
    fail_fast_auth: bool = False

    def delay_s(self, retry: int) -> float:
        """The pause before retry number ``retry``, counted from 0."""
        return min(math.ldexp(self.first_delay_s, min(retry, 30)), self.delay_cap_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """``config`` and ``client`` are obstore's own settings (endpoint, credentials, proxies …) and win over the rest.

    ``fsync``: whether the directory store waits for the disk.  ``concurrency``: requests in flight per store.
    """

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    part_size_bytes: int = 8 * 1024 * 1024
    concurrency: int = 32
    fsync: bool = True
    # Credentials must not come into a log or a traceback with whatever says which database it is about.
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
