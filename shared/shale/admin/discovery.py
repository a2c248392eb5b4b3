"""Find the databases directly below a path.  Costs two requests for each, however many objects it has."""

from collections.abc import AsyncIterator, Callable

import anyio

from shale.errors import ProtocolPanic, ShaleError
from shale.format.names import manifest_prefix
from shale.protocol.markers import is_destroyed
from shale.store.port import ObjectStore
from shale.store.wrapper import next_page

_AFTER_SLASH = "0"
"""The character after ``/``: all keys ``a/…`` sort before ``a0``."""


async def databases_below(store: ObjectStore, path: str) -> AsyncIterator[str]:
    """The paths of databases ``path/NAME`` that have a manifest, or a marker of having been destroyed.

    Deeper paths are not searched.
    """
    prefix = f"{path}/" if path else ""
    after = ""
    while page := await next_page(store.list_pages(prefix, after=after)):
        folder = next((name for meta in page if (name := _folder(meta.key, prefix)) is not None), None)
        if folder is None:
            after = page[-1].key
            continue
        root = prefix + folder
        if await next_page(store.list_pages(manifest_prefix(root))) or await is_destroyed(store, root):
            yield root
        after = root + _AFTER_SLASH


async def watch_databases(
    store: ObjectStore,
    path: str,
    *,
    found: Callable[[str], object],
    failed: Callable[[ShaleError], object],
    interval_s: Callable[[], float],
) -> None:
    """Search for databases directly below a path until cancelled.

    Args:
        found: called with each path, at each search.
        failed: called with the error of a search that failed; the next one follows as usual.
        interval_s: returns the time between two searches.

    Raises:
        ProtocolPanic: a protocol invariant is broken; nothing more may be written.
    """
    while True:
        try:
            async for root in databases_below(store, path):
                found(root)
        except ProtocolPanic:
            raise
        except ShaleError as error:
            failed(error)
        await anyio.sleep(interval_s())


def _folder(key: str, prefix: str) -> str | None:
    """Return the first path segment below the prefix; ``None`` for an object directly below it."""
    name, slash, _ = key[len(prefix) :].partition("/")
    return name if slash else None
