"""Scripts of lock libraries, and what runs in their place.

A lock is a key whose value is the token of its owner.  Only the owner may extend or release it, so libraries compare
and write in one script.  No Lua runs here: a script is recognized by its shape, and a function does the same, as one
transaction.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha1

from shale.core.lazy_dataclass import dataclass
from shale.resp.scripts.lua_shape import Shape, shape_of

SCRIPTS_MAX = 1024
"""So many hashes are remembered; a forgotten one is answered with NOSCRIPT, after which clients send the text."""


@dataclass(frozen=True, slots=True)
class LockScript:
    """What a script does.

    Args:
        action: the name of the function that runs in its place (``shale.resp.commands.lock_actions``).
        keys: the least number of keys.
        args: the least number of arguments.
        absent: the answer if there is no lock.
        foreign: the answer if the lock has another token.
    """

    action: str
    keys: int
    args: int
    absent: int = 0
    foreign: int = 0


_GET = "redis.call('get', KEYS[1])"
_SET = "redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])"
_COMMANDS = {
    "redis.call('del', KEYS[1])": LockScript("release", 1, 1),
    "redis.call('unlink', KEYS[1])": LockScript("release", 1, 1),
    "redis.call('pexpire', KEYS[1], ARGV[2])": LockScript("extend_ms", 1, 2),
    "redis.call('expire', KEYS[1], ARGV[2])": LockScript("extend_s", 1, 2),
    "redis.call('pttl', KEYS[1])": LockScript("time_left_ms", 1, 1),
}
_FOR_ALL = "for i, key in ipairs(KEYS) do"
_SET_ALL = f"{_FOR_ALL} redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS"


def _scripts() -> Iterator[tuple[str, LockScript]]:
    for command, script in _COMMANDS.items():
        for answer in (0, -1, -3):
            found = LockScript(script.action, script.keys, script.args, answer, answer)
            for condition in (f"if {_GET} == ARGV[1] then", f"local t = {_GET} if t == ARGV[1] then"):
                yield f"{condition} return {command} else return {answer} end", found
                yield f"{condition} return {command} end return {answer}", found
        if script.action != "time_left_ms":
            yield f"local t = {_GET} if not t or t ~= ARGV[1] then return 0 end {command} return 1", script
            yield f"if {_GET} == ARGV[1] then {command} return 1 else return 0 end", script
            yield f"if {_GET} == ARGV[1] then {command} return 1 end return 0", script
            yield f"if {_GET} ~= ARGV[1] then return 0 end return {command}", script
        split = LockScript(script.action, script.keys, script.args, -1, 0)
        yield (
            f"local t = {_GET} if t == ARGV[1] then return {command} "
            "elseif t == false then return -1 else return 0 end",
            split,
        )
    yield from _extensions()
    yield from _redlock()
    yield from _others()


def _extensions() -> Iterator[tuple[str, LockScript]]:
    """Scripts that add to the time that is left."""
    left = (
        f"local t = {_GET} if not t or t ~= ARGV[1] then return 0 end local left = redis.call('pttl', KEYS[1]) "
        "if not left then left = 0 end if left < 0 then return 0 end"
    )
    flag = (
        "local ms = ARGV[2] if ARGV[3] == '0' then ms = ARGV[2] + left end redis.call('pexpire', KEYS[1], ms) return 1"
    )
    yield f"{left} {flag}", LockScript("prolong", 1, 3)
    yield f"{left} redis.call('pexpire', KEYS[1], left + ARGV[2]) return 1", LockScript("prolong", 1, 2)


def _redlock() -> Iterator[tuple[str, LockScript]]:
    """Scripts that guard several keys with one token."""
    is_taken = f"{_FOR_ALL} if redis.call('exists', key) == 1 then return 0 end end"
    is_foreign = f"{_FOR_ALL} if redis.call('get', key) ~= ARGV[1] then return 0 end end"
    yield f"{is_taken} {_SET_ALL}", LockScript("take_all", 1, 2)
    yield f"{is_foreign} {_SET_ALL}", LockScript("extend_all", 1, 2)
    for call in ("call", "pcall"):
        yield (
            f"local n = 0 {_FOR_ALL} if redis.call('get', key) == ARGV[1] then redis.{call}('del', key) n = n + 1 end "
            "end return n",
            LockScript("release_all", 1, 1),
        )


def _others() -> Iterator[tuple[str, LockScript]]:
    """Scripts that take a lock, or take or extend it."""
    yield "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])", LockScript("take", 1, 2)
    yield "return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX')", LockScript("take", 1, 2)
    extend = "redis.call('pexpire', KEYS[1], ARGV[2])"
    take = "redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX')"
    yield (
        f"if {_GET} == ARGV[1] then return {extend} elseif {take} then return 1 else return 0 end",
        LockScript("take_or_extend", 1, 2),
    )
    yield (
        f"local t = {_GET} if t == false then return {_SET} and 1 or 0 elseif t == ARGV[1] then "
        f"return {extend} else return -1 end",
        LockScript("take_or_extend", 1, 2, 1, -1),
    )
    reenter = f"local t = {_GET} if t == ARGV[1] then {extend} return true elseif not t then {_SET} return true"
    yield f"{reenter} end return false", LockScript("reenter", 1, 2)
    yield f"{reenter} else return false end", LockScript("reenter", 1, 2)
    yield (
        f"if (redis.call('exists', KEYS[1]) == 0 and ARGV[3] == 'yes') or {_GET} == ARGV[1] then return {_SET} end",
        LockScript("take_or_renew", 1, 3),
    )
    yield f"return {{ {_GET}, redis.call('pttl', KEYS[1]) }}", LockScript("describe", 1, 0)
    renew = "redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[3])"
    yield (
        "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return redis.status_reply('OK') end "
        "local n = tonumber(ARGV[2]) "
        f"if redis.call('getrange', KEYS[1], 0, n-1) == string.sub(ARGV[1], 1, n) then return {renew} end",
        LockScript("take_by_prefix", 1, 3),
    )


@cache
def _known_shapes() -> Mapping[Shape, LockScript]:
    return {shape: script for text, script in _scripts() if (shape := shape_of(text.encode())) is not None}


class ScriptCache:
    """The scripts that clients of one server have sent, by their hash."""

    def __init__(self) -> None:
        self._by_hash: OrderedDict[bytes, LockScript] = OrderedDict()

    def add(self, text: bytes) -> tuple[bytes, LockScript] | None:
        """Return the hash and the meaning of a script, and remember it; ``None`` if it is unknown."""
        shape = shape_of(text)
        script = None if shape is None else _known_shapes().get(shape)
        if script is None:
            return None
        digest = sha1(text, usedforsecurity=False).hexdigest().encode()
        self._by_hash[digest] = script
        self._by_hash.move_to_end(digest)
        while len(self._by_hash) > SCRIPTS_MAX:
            self._by_hash.popitem(last=False)
        return digest, script

    def find(self, digest: bytes) -> LockScript | None:
        """Return the script of a hash, which may be in upper case."""
        return self._by_hash.get(digest.lower())

    def clear(self) -> None:
        """Forget all scripts."""
        self._by_hash.clear()
