"""SlateDB's Python package: ``import shale.compat.slatedb as slatedb`` in place of ``import slatedb``
(docs/how-to/migrate-from-slatedb.md).

As in SlateDB, the names are those of ``uniffi``; here they are also available without it.
"""

from shale.compat.slatedb import uniffi
from shale.compat.slatedb.uniffi import *  # noqa: F403 - the same names, whatever they are

__all__ = ["uniffi"]
__all__ += uniffi.__all__
