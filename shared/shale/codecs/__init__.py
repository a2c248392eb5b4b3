"""Keys and values as Python objects: how the typed views of a database (``Db.mapping``) turn them into bytes and back.

``BYTES``, ``TEXT``, ``INT``, ``JSON`` and ``MSGPACK`` are codecs; ``struct_of(format)`` and ``typed(Type)`` make one.
A codec of your own is anything with their two methods and ``keeps_order``.
"""

from typing import TYPE_CHECKING

from shale.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from shale.codecs.codec import Codec
    from shale.codecs.documents import JSON, MSGPACK, typed
    from shale.codecs.plain import BYTES, INT, TEXT, struct_of

_MODULES = {
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

__getattr__, __dir__ = lazy_names(globals(), _MODULES, __all__)
