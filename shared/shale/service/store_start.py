"""Opening the store when a daemon starts: reachable within the start timeout, and proven safe (exit 69, 77, 81)."""

import contextlib
from collections.abc import AsyncIterator

import anyio

from shale.env import Env
from shale.errors import UnavailableError
from shale.service.sections import StoreSection
from shale.store.connect import connect
from shale.store.location import Location
from shale.store.options import StoreOptions
from shale.store.retry import RetryingStore
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
        request_timeout_s=section.request_timeout,
        connect_timeout_s=section.connect_timeout,
        config=config,
        client={"allow_http": "true"} if section.allow_http else {},
    )


@contextlib.asynccontextmanager
async def open_proven_store(
    location: Location, section: StoreSection, env: Env, metrics: Metrics, *, role: str
) -> AsyncIterator[RetryingStore]:
    """The store of a daemon; it is closed when the block ends, whatever happened.

    Raises:
        UnavailableError: no answer within ``start_timeout``.
        StoreUnsafe: it fails the conditional-write check.
    """
    store = connect(location.store_url, env, metrics, store_options(section), component=role)
    try:
        with anyio.move_on_after(section.start_timeout) as scope:
            await store.head(f"{location.path}/")
        if scope.cancelled_caught:
            raise UnavailableError(f"{store.url}: no answer within {section.start_timeout:g} s")
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()
