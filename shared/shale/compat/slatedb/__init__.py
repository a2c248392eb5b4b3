"""SlateDB's Python package: ``import shale.compat.slatedb as slatedb`` in place of ``import slatedb`` (docs/compat.md).

As there, the names are those of ``uniffi``; here they can be had without it too.
"""

from shale.compat.slatedb import uniffi
from shale.compat.slatedb.uniffi import *  # noqa: F403 - the same names, whatever they are

__all__ = ["uniffi"]
__all__ += uniffi.__all__
