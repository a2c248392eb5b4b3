"""Opens and checks the store when a daemon starts (exit 69, 77, 81)."""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio

from shale.concurrency.first_error import first_error
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.service.config.secret_url import url_text
from shale.service.config.sections import StoreSection
from shale.store.connect import connect
from shale.store.failing_writes import FailingWrites
from shale.store.options import RetryPolicy, StoreOptions
from shale.store.preflight import require_safe_store
from shale.store.retry import RetryingStore
from shale.store.two_phase.recovery import TwoPhaseRecovery
from shale.store.two_phase.store import two_phase_of

if TYPE_CHECKING:
    from shale.telemetry.metrics import Metrics


def store_options(section: StoreSection) -> StoreOptions:
    """Return the options of the store package."""
    secrets = {
        "access_key_id": section.access_key_id,
        "secret_access_key": section.secret_access_key,
        "session_token": section.session_token,
    }
    config = {name: secret.get_secret_value() for name, secret in secrets.items() if secret is not None}
    plain = {"endpoint": url_text(section.endpoint), "region": section.region}
    config |= {name: text for name, text in plain.items() if text is not None}
    return StoreOptions(
        retry=RetryPolicy(retries_max=section.max_retries, fail_fast_auth=section.fail_fast_auth),
        request_timeout_s=section.request_timeout,
        connect_timeout_s=section.connect_timeout,
        config=config,
        cas=section.cas,
        ack_after=section.ack_after,
        transactional_url=None if section.transactional_url is None else section.transactional_url.get_secret_value(),
    )


@dataclass(frozen=True, slots=True)
class RecoveryScope:
    """The keys whose puts are recovered in one store: those below ``prefix`` and not below ``excluded``."""

    prefix: str = ""
    excluded: str | None = None


@dataclass(frozen=True, slots=True)
class StoreOpener:
    """Opens the stores of a daemon and checks that they are safe.

    Args:
        section: access to the store.
        env: clock, randomness, ids and threads.
        metrics: the metrics registry.
        role: the name of the daemon, a label of metrics.
        writes: told of failing writes.
    """

    section: StoreSection
    env: Env
    metrics: "Metrics"
    role: str
    writes: FailingWrites

    @contextlib.asynccontextmanager
    async def open(
        self,
        url: str,
        *,
        needs_update: bool,
        writes: bool,
        path: str = "",
        store_type: str = "main",
        recovers: RecoveryScope = RecoveryScope(),  # noqa: B008 - immutable
    ) -> AsyncIterator[RetryingStore]:
        """Open a store; close it when the block ends.

        Args:
            url: URL of the store.
            needs_update: whether the store must support conditional updates; not if boundary files are off.
            writes: whether the daemon writes; a read-only daemon skips the check.
            path: where the check writes, for credentials that are limited to a path.
            store_type: ``main`` or ``wal``.
            recovers: the keys that this store has, if it is of the two-phase mode.

        Raises:
            UnavailableError: the store did not respond within ``start_timeout``.
            StoreUnsafe: the store fails the conditional-write check.
        """
        section, env, metrics = self.section, self.env, self.metrics
        store = connect(
            url,
            env,
            metrics,
            store_options(section),
            component=self.role,
            store_type=store_type,
            writes=self.writes,
        )
        try:
            if section.preflight and writes:
                await require_safe_store(
                    store,
                    env,
                    prefix=path,
                    needs_update=needs_update,
                    metrics=metrics,
                    deadline_s=section.start_timeout,
                )
            async with _recovering(store, env, metrics, recovers):
                yield store
        finally:
            with anyio.CancelScope(shield=True):
                await store.aclose()


@contextlib.asynccontextmanager
async def _recovering(store: RetryingStore, env: Env, metrics: "Metrics", scope: RecoveryScope) -> AsyncIterator[None]:
    """Finish what dead processes left while the block runs, if the store is of the two-phase mode."""
    two_phase = two_phase_of(store)
    if two_phase is None:
        yield
        return
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(TwoPhaseRecovery(two_phase, env, metrics, scope.prefix, excluded=scope.excluded).run)
            yield
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group) from group
