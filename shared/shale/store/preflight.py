"""Checks that a store has the properties that the protocols rely on (docs/how-to/object-stores.md).

A store that ignores conditions of puts looks healthy until two processes conflict, and then loses data.  The check
therefore races conditional puts on scratch keys and deletes them.  They are below the path of the database, beside its
namespaces: credentials are often limited to that path.

Every daemon runs the short form when it starts; ``shale doctor`` runs the full one.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import ConflictError, CorruptionError, StoreUnsafe, UnavailableError
from shale.store.port import ObjectStore
from shale.store.probe import CLOCK_SKEW_MAX_MS, Probe, SkippedError
from shale.store.retry import RetryingStore
from shale.store.transactional.port import SCHEMA_VERSION
from shale.store.wrapper import cas_of
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import CasMode

log = get_logger("store")

SHORT_ROUNDS, SHORT_RACERS = 2, 4
FULL_ROUNDS, FULL_RACERS = 10, 16
CAS_CHECKS = frozenset({"create-conflict", "create-race", "update-stale", "update-race"})
RECORDS_CHECK = "records"
CAS_HINT = "a store without conditional writes needs store.cas=two-phase and store.transactional_url"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check.  ``required``: daemons refuse a store that fails.  ``ok`` is ``None`` if skipped."""

    name: str
    required: bool
    ok: bool | None
    expected: str
    seen: str


async def check_store(
    store: ObjectStore, env: Env, *, full: bool, prefix: str = "", needs_update: bool = True
) -> list[CheckResult]:
    """Run the checks and return their results.

    Args:
        full: all checks with long races, instead of only conditional puts with short races.
        prefix: the path of the database; empty for the whole store.
        needs_update: whether a conditional update is required; not if boundary files are off.

    Raises:
        UnavailableError, AccessDenied, NotFoundError, InvalidRequestError: the store could not be checked.
    """
    probe = Probe(store, env, prefix)
    rounds, racers = (FULL_ROUNDS, FULL_RACERS) if full else (SHORT_ROUNDS, SHORT_RACERS)
    checks: list[tuple[str, bool, str, Callable[[], Awaitable[str | None]]]] = [
        ("create-conflict", True, "a create over an object conflicts", probe.create_conflict),
        ("create-race", True, f"1 winner of {racers} creates", lambda: probe.race_creates(rounds, racers)),
    ]
    if cas_of(store) is CasMode.NATIVE:  # else only boundaries are updated, which are low-water marks
        checks += [
            ("update-stale", needs_update, "an update with an old etag conflicts", probe.update_stale),
            ("update-race", needs_update, f"1 winner of {racers} updates", lambda: probe.race_updates(rounds, racers)),
        ]
    else:
        checks.insert(
            0, (RECORDS_CHECK, True, f"tables of version {SCHEMA_VERSION} in the transactional store", probe.records)
        )
    if full:
        checks += [
            ("read-after-write", True, "the bytes that were put last", probe.read_after_write),
            ("list-after-put", True, "exactly the keys that were put", probe.list_after_put),
            ("ranges", True, "exactly the bytes that were asked for", probe.ranges),
            ("conditional-get", True, "an unchanged object is not sent again", probe.conditional_get),
            ("multipart", True, "a streamed object comes back whole", probe.multipart),
            ("metadata", False, "user metadata comes back", probe.metadata),
            ("delete", True, "deleting twice succeeds and deletes", probe.delete_twice),
            ("clock", False, f"the store's clock is within {CLOCK_SKEW_MAX_MS} ms of ours", probe.clock),
        ]
    try:
        results: list[CheckResult] = []
        for name, required, expected, check in checks:
            results.append(await _checked(name, required, expected, check))
            if name == RECORDS_CHECK and results[-1].ok is False:
                break  # nothing can be created
        return results
    finally:
        await probe.clean_up()


async def require_safe_store(
    store: ObjectStore,
    env: Env,
    *,
    prefix: str = "",
    needs_update: bool = True,
    metrics: Metrics | None = None,
    deadline_s: float = 20.0,
) -> None:
    """Run the short form, as every daemon does at start.

    Raises:
        StoreUnsafe: a required check failed; the message has its name, the expected and the observed result.
        UnavailableError: the store did not respond within the deadline.
        AccessDenied: the store refuses the credentials.
    """
    results: list[CheckResult] = []
    tried = with_short_retries(store, deadline_s)
    with anyio.move_on_after(deadline_s) as scope:
        results = await check_store(tried, env, full=False, prefix=prefix, needs_update=needs_update)
        if metrics is not None:
            await measure_clock(tried, env, prefix, metrics)
    if scope.cancelled_caught:
        raise UnavailableError(f"{store.url}: the store did not answer within {deadline_s:g} s")
    for result in results:
        if result.required and result.ok is False:
            hint = f"; {CAS_HINT}" if result.name in CAS_CHECKS and cas_of(store) is CasMode.NATIVE else ""
            log.error(Event.STORE_UNSAFE, check=result.name, expected=result.expected, seen=result.seen)
            raise StoreUnsafe(
                f"{store.url}: unsafe store, check {result.name}: expected {result.expected}, saw {result.seen}{hint}"
            )


async def measure_clock(store: ObjectStore, env: Env, prefix: str, metrics: Metrics) -> None:
    """Set the gauge of the difference between the store's clock and ours, from the time of a scratch object.

    Raises:
        ShaleError: the store refused a request, or did not answer; the gauge keeps its value.
    """
    probe = Probe(store, env, prefix)
    try:
        metrics.gauge("slatedb_clock_skew_seconds").set(await probe.skew_ms() / 1000)
    finally:
        await probe.clean_up()


def with_short_retries(store: ObjectStore, deadline_s: float) -> ObjectStore:
    """Return the store with a policy that gives up before the deadline, and at once when access is denied."""
    if not isinstance(store, RetryingStore):
        return store
    retries_max = max(1, int(deadline_s / 2))
    return store.with_policy(replace(store.policy, retries_max=retries_max, fail_fast_auth=True))


async def _checked(name: str, required: bool, expected: str, check: Callable[[], Awaitable[str | None]]) -> CheckResult:
    """Run one check, which returns ``None`` for success, else what it observed."""
    try:
        seen = await check()
    except SkippedError as skipped:
        return CheckResult(name=name, required=required, ok=None, expected=expected, seen=str(skipped))
    except (StoreUnsafe, CorruptionError, ConflictError) as error:
        seen = str(error)
    return CheckResult(name=name, required=required, ok=seen is None, expected=expected, seen=seen or "as expected")
