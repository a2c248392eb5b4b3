"""Keys and values as Python objects: how the typed views of a database (``Db.mapping``) turn them into bytes and back.

``BYTES``, ``TEXT``, ``INT``, ``JSON`` and ``MSGPACK`` are codecs; ``struct_of(format)`` and ``typed(Type)`` make one.
A codec of your own is anything with their two methods and ``keeps_order``.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shale.codecs.codec import Codec
    from shale.codecs.documents import JSON, MSGPACK, typed
    from shale.codecs.plain import BYTES, INT, TEXT, struct_of

_HOMES = {
    "BYTES": "shale.codecs.plain",
    "Codec": "shale.codecs.codec",
    "INT": "shale.codecs.plain",
    "JSON": "shale.codecs.documents",
    "MSGPACK": "shale.codecs.documents",
    "TEXT": "shale.codecs.plain",
    "struct_of": "shale.codecs.plain",
    "typed": "shale.codecs.documents",
}

__all__ = ["BYTES", "INT", "JSON", "MSGPACK", "TEXT", "Codec", "struct_of", "typed"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shale.codecs' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
