"""Which databases lie directly below a path of a store.  One request each, however many objects they have."""

from collections.abc import AsyncIterator

from shale.format.names import manifest_prefix
from shale.protocol.markers import is_destroyed
from shale.store.pages import next_page
from shale.store.port import ObjectStore

_BEHIND_A_SLASH = "0"
"""The character that follows ``/``: behind ``a/…`` comes ``a0``."""


async def databases_below(store: ObjectStore, path: str) -> AsyncIterator[str]:
    """The paths of databases ``path/NAME`` that have a manifest, or a marker of having been destroyed.

    What lies deeper is not looked at.
    """
    prefix = f"{path}/" if path else ""
    after = ""
    while (key := await _first_key(store, prefix, after)) is not None:
        name, slash, _ = key[len(prefix) :].partition("/")
        if not slash:
            after = key
            continue
        root = prefix + name
        if await _first_key(store, manifest_prefix(root)) is not None or await is_destroyed(store, root):
            yield root
        after = root + _BEHIND_A_SLASH


async def _first_key(store: ObjectStore, prefix: str, after: str = "") -> str | None:
    page = await next_page(store.list_pages(prefix, after=after))
    return page[0].key if page else None
