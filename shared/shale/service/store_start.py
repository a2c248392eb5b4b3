"""Opening the store when a daemon starts: reachable within the start timeout, and proven safe (exit 69, 77, 81)."""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio

from shale.env import Env
from shale.service.sections import StoreSection
from shale.store.connect import connect
from shale.store.options import RetryPolicy, StoreOptions
from shale.store.preflight import require_safe_store
from shale.store.retry import RetryingStore

if TYPE_CHECKING:
    from shale.telemetry.metrics import Metrics


def store_options(section: StoreSection) -> StoreOptions:
    """The plain value that the store room takes."""
    secrets = {
        "access_key_id": section.access_key_id,
        "secret_access_key": section.secret_access_key,
        "session_token": section.session_token,
    }
    config = {name: secret.get_secret_value() for name, secret in secrets.items() if secret is not None}
    config |= {name: text for name in ("endpoint", "region") if (text := getattr(section, name)) is not None}
    return StoreOptions(
        retry=RetryPolicy(retries_max=section.max_retries, fail_fast_auth=section.fail_fast_auth),
        request_timeout_s=section.request_timeout,
        connect_timeout_s=section.connect_timeout,
        config=config,
    )


@contextlib.asynccontextmanager
async def open_proven_store(
    url: str,
    section: StoreSection,
    env: Env,
    metrics: "Metrics",
    *,
    role: str,
    needs_update: bool,
    writes: bool,
    store_type: str = "main",
) -> AsyncIterator[RetryingStore]:
    """The store of a daemon; it is closed when the block ends, whatever happened.

    Args:
        url: of the store.
        needs_update: whether conditional updates are needed; not if boundary files are off.
        writes: whether anything is written; else nothing has to be proven.
        store_type: main or wal.

    Raises:
        UnavailableError: no answer within ``start_timeout``.
        StoreUnsafe: it fails the conditional-write check.
    """
    store = connect(url, env, metrics, store_options(section), component=role, store_type=store_type)
    try:
        if section.preflight and writes:
            await require_safe_store(
                store, env, needs_update=needs_update, metrics=metrics, deadline_s=section.start_timeout
            )
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()
