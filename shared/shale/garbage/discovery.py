"""Which databases lie directly below a path of a store.  Two requests each, however many objects they have."""

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
    while page := await next_page(store.list_pages(prefix, after=after)):
        folder = next((name for meta in page if (name := _folder(meta.key, prefix)) is not None), None)
        if folder is None:
            after = page[-1].key
            continue
        root = prefix + folder
        if await next_page(store.list_pages(manifest_prefix(root))) or await is_destroyed(store, root):
            yield root
        after = root + _BEHIND_A_SLASH


def _folder(key: str, prefix: str) -> str | None:
    """The first part of a name below the prefix; ``None`` for an object that lies there itself."""
    name, slash, _ = key[len(prefix) :].partition("/")
    return name if slash else None
