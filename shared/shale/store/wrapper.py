"""What stores on top of another store have in common."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial

from shale.concurrency.gather import gather
from shale.errors import ShaleError
from shale.store.port import ObjectMeta, ObjectStore, StagingFiles
from shale.types import CasMode


class StoreWrapper:
    """The parts of the port that a wrapper passes on unchanged."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def wrapped(self) -> ObjectStore:
        """The store below."""
        return self._store

    @property
    def url(self) -> str:
        """See ``ObjectStore``."""
        return self._store.url

    @property
    def supports_attributes(self) -> bool:
        """See ``ObjectStore``."""
        return self._store.supports_attributes

    @property
    def cas(self) -> CasMode:
        """How the store creates an object once."""
        return cas_of(self._store)

    async def aclose(self) -> None:
        """See ``ObjectStore``."""
        await self._store.aclose()


def cas_of(store: ObjectStore) -> CasMode:
    """Return how a store, or the one that it wraps, creates an object once."""
    cas: CasMode = getattr(store, "cas", CasMode.NATIVE)
    return cas


def staging_files_of(store: ObjectStore) -> StagingFiles | None:
    """Return the store that hides staged files, among a store and those that it wraps."""
    found: object = store
    while isinstance(found, StoreWrapper):
        found = found.wrapped
    return found if isinstance(found, StagingFiles) else None


async def next_page(pages: AsyncIterator[Sequence[ObjectMeta]]) -> Sequence[ObjectMeta]:
    """Return the next page of a listing; an empty one is the end.

    The built-in ``anext`` with a default turns errors of the iterator into ``SystemError`` (CPython 3.11).
    """
    async for page in pages:
        return page
    return ()


async def delete_each(delete: Callable[[str], Awaitable[None]], keys: Iterable[str]) -> dict[str, ShaleError]:
    """Delete objects one by one, several at a time, and return the errors by key."""

    async def attempt(key: str) -> ShaleError | None:
        try:
            await delete(key)
        except ShaleError as error:
            return error
        return None

    listed = list(keys)
    outcomes = await gather([partial(attempt, key) for key in listed])
    return {key: error for key, error in zip(listed, outcomes, strict=True) if error is not None}
