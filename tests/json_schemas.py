"""The package jsonschema, imported without the grammars of internationalized addresses.

They are for its format checker, which no test uses.  To build them takes two seconds of processor time in each process.
"""

import sys

_GRAMMARS = "rfc3987_syntax"

if _GRAMMARS not in sys.modules:
    sys.modules[_GRAMMARS] = None  # type: ignore[assignment]  # the package goes on without it
    import jsonschema

    del sys.modules[_GRAMMARS]
else:
    import jsonschema

__all__ = ["jsonschema"]
