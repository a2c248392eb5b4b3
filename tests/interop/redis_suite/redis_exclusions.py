"""The tests of Redis' own suite that are not run, each with the reason."""

from collections.abc import Mapping

_OTHER_TYPES = "lists, sets, hashes, sorted sets and streams do not exist"
_LCS = "LCS does not exist"
_PATTERN = "a pattern may have 1,024 bytes; this one has 100,000"
_MEMORY = "`maxmemory` cannot be set"
_LUA = "there is no Lua"
_COMMANDS = "it expects commands that would stop or save the server to exist"

EXCLUDED: Mapping[str, Mapping[str, str]] = {
    "unit/type/string": {
        "MGET against non-string key": _OTHER_TYPES,
        "SETBIT against key with wrong type": _OTHER_TYPES,
        "SETRANGE against key with wrong type": _OTHER_TYPES,
        "GETRANGE against wrong key type": _OTHER_TYPES,
        "Extended SET GET with incorrect type should result in wrong type error": _OTHER_TYPES,
        "LCS basic": _LCS,
        "LCS len": _LCS,
        "LCS indexes": _LCS,
        "LCS indexes with match len": _LCS,
        "LCS indexes with match len and minimum match len": _LCS,
    },
    "unit/type/incr": {
        "INCR fails against a key holding a list": _OTHER_TYPES,
        "INCRBYFLOAT fails against a key holding a list": _OTHER_TYPES,
    },
    "unit/expire": {
        "EXPIRE - write on expire should work": _OTHER_TYPES,
    },
    "unit/keyspace": {
        "COPY basic usage for list - quicklist": _OTHER_TYPES,
        "COPY basic usage for list - listpack": _OTHER_TYPES,
        "COPY basic usage for $type set": _OTHER_TYPES,
        "COPY basic usage for listpack sorted set": _OTHER_TYPES,
        "COPY basic usage for skiplist sorted set": _OTHER_TYPES,
        "COPY basic usage for listpack hash": _OTHER_TYPES,
        "COPY basic usage for hashtable hash": _OTHER_TYPES,
        "COPY basic usage for stream": _OTHER_TYPES,
        "COPY basic usage for stream-cgroups": _OTHER_TYPES,
        "Regression for pattern matching very long nested loops": _PATTERN,
    },
    "unit/multi": {
        "MULTI / EXEC basics": _OTHER_TYPES,
        "DISCARD": _OTHER_TYPES,
        "MULTI where commands alter argc/argv": _OTHER_TYPES,
        "EXEC fails if there are errors while queueing commands #2": _MEMORY,
        "EXEC fail on WATCHed key modified by SORT with STORE even if the result is empty": _OTHER_TYPES,
        "DISCARD should not fail during OOM": _MEMORY,
        "MULTI and script timeout": _LUA,
        "EXEC and script timeout": _LUA,
        "MULTI-EXEC body and script timeout": _LUA,
        "just EXEC and script timeout": _LUA,
        "EXEC with only read commands should not be rejected when OOM": _MEMORY,
        "EXEC with at least one use-memory command should fail": _MEMORY,
        "Blocking commands ignores the timeout": _OTHER_TYPES,
        "MULTI with SAVE": _COMMANDS,
        "MULTI with SHUTDOWN": _COMMANDS,
    },
}  # fmt: skip
"""By unit and test, with the reason that docs/reference/redis.md gives."""

IGNORED_TAGS = ("needs:debug", "needs:repl")
"""The suite skips tests with these tags, and with ``external:skip`` and ``singledb:skip``, by itself."""
