"""The text of ``/metrics``: one encoding at a time, cut into short steps, for all clients that wait for it."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.lowlevel import checkpoint
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder

from shale.core.token_bucket import TokenBucket
from shale.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

LOOP_SHARE = 0.2
"""Encodings take so much of the time of the event loop, at most; clients that scrape more often wait, and share one."""
STEP_SAMPLES = 128
"""After so many samples other tasks run: about 1 ms."""
_OPENMETRICS = "application/openmetrics-text"
_OPENMETRICS_END = b"# EOF\n"


class _One(NamedTuple):
    """One metric, as a collector of the client library."""

    metric: "Metric"

    def collect(self) -> "Iterator[Metric]":
        """Yield it."""
        yield self.metric


class _Page(NamedTuple):
    """An encoding, and its number in the order of their starts."""

    number: int
    data: bytes


class MetricsPage:
    """Encodes the metrics of a process.

    A page shows values of after its request: a request shares only an encoding that began after it arrived.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = anyio.Lock()
        self._started = 0
        self._pages: dict[bool, _Page] = {}
        self._loop_s = TokenBucket(LOOP_SHARE, time.monotonic())

    async def encode(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type for an ``Accept`` header; plain text if it asks for nothing better."""
        encode, content_type = _encoder(accept)
        is_openmetrics = content_type.startswith(_OPENMETRICS)
        seen = self._started
        async with self._lock:
            page = self._pages.get(is_openmetrics)
            if page is None or page.number <= seen:
                await anyio.sleep(self._loop_s.wait_s(time.monotonic()) or 0)
                self._started += 1
                page = _Page(self._started, await self._encoded(encode, is_openmetrics=is_openmetrics))
                self._pages[is_openmetrics] = page
            if not self._lock.statistics().tasks_waiting:
                self._pages.clear()
            return page.data, content_type

    async def _encoded(self, encode: Callable[[_One], bytes], *, is_openmetrics: bool) -> bytes:
        parts, samples, start_s = [], 0, time.monotonic()
        self._metrics.refresh()
        for metric in self._metrics.registry.collect():
            parts.append(encode(_One(metric)).removesuffix(_OPENMETRICS_END if is_openmetrics else b""))
            samples += len(metric.samples)
            if samples >= STEP_SAMPLES:
                self._loop_s.take(time.monotonic() - start_s)
                await checkpoint()
                samples, start_s = 0, time.monotonic()
        self._loop_s.take(time.monotonic() - start_s)
        return b"".join((*parts, _OPENMETRICS_END if is_openmetrics else b""))


def _encoder(accept: str) -> tuple[Callable[[_One], bytes], str]:
    """Choose a format; the client library compares versions, and fails for those that are no numbers."""
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):
        return generate_latest, CONTENT_TYPE_PLAIN_0_0_4
