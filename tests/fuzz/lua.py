"""The part of Lua 5.1 that scripts of lock libraries use, as Redis runs it: what the actions are compared with."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_TOKEN = re.compile(
    rb"""(?:[ \t\r\n;]+|--(?!\[)[^\n]*)*
    (?P<token>"[^"\\\n]*"|'[^'\\\n]*'|[A-Za-z_]\w*|[0-9]+|==|~=|<=|>=|\.\.|[-+*/%^\#<>=(){}\[\],.:]|\Z)""",
    re.VERBOSE,
)
_WORDS = frozenset(b"and do else elseif end false for if in local nil not or return then true while".split())
_BINARY = {b"or": 1, b"and": 2, b"==": 3, b"~=": 3, b"<": 3, b"<=": 3, b">": 3, b">=": 3, b"+": 5, b"-": 5}
_UNARY = 7
_EXACT = 1 << 53
_ROUNDS_MAX = 1000

Command = Callable[[list[bytes]], Any]
"""Runs a command of Redis; raises ``ScriptError``."""
Node = tuple[Any, ...]


class ScriptError(Exception):
    """The script ends with an error."""


class Unsupported(Exception):
    """The script uses what this part of Lua has not, or a number that is not exact."""


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def run(script: bytes, keys: Sequence[bytes], args: Sequence[bytes], command: Command) -> Any:
    """Run a script and return its value: ``None``, a bool, a number, bytes, a list or a table.

    Raises:
        ScriptError: the script fails.
        Unsupported: it cannot be said what the script does.
    """
    block = _Parser(list(_tokens(script))).block(b"")
    try:
        _Run(keys, args, command).block(block)
    except _Return as returned:
        return returned.value
    return None


def _tokens(script: bytes) -> Iterator[bytes]:
    at = 0
    while True:
        found = _TOKEN.match(script, at)
        if found is None:
            raise Unsupported
        yield found["token"]
        if not found["token"]:
            return
        at = found.end()


class _Parser:
    """Recursive descent; statements and expressions become tuples whose first element is their kind."""

    def __init__(self, tokens: list[bytes]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def _next(self) -> bytes:
        return self._tokens[self._at]

    def _take(self) -> bytes:
        token = self._next
        if not token:
            raise Unsupported
        self._at += 1
        return token

    def _expect(self, *tokens: bytes) -> bytes:
        token = self._take()
        if token not in tokens:
            raise Unsupported
        return token

    def _name(self) -> str:
        token = self._take()
        if token in _WORDS or not token.replace(b"_", b"a").isalnum() or token[:1].isdigit():
            raise Unsupported
        return token.decode()

    def block(self, *ends: bytes) -> list[Node]:
        """Return the statements up to one of these tokens; the end of the script is an empty one."""
        found = []
        while self._next not in ends:
            found.append(self._statement())
        return found

    def _statement(self) -> Node:
        match self._next:
            case b"return":
                self._take()
                is_bare = self._next in (b"end", b"else", b"elseif", b"")
                return "return", ("value", None) if is_bare else self._expression()
            case b"if":
                return self._if()
            case b"for":
                self._take()
                names = self._name(), self._expect(b",") and self._name()
                self._expect(b"in")
                self._expect(b"ipairs")
                self._expect(b"(")
                each = self._expression()
                self._expect(b")")
                self._expect(b"do")
                body = self.block(b"end")
                self._take()
                return "for", *names, each, body
            case b"local":
                self._take()
                name = self._name()
                self._expect(b"=")
                return "local", name, self._expression()
        value = self._expression(_UNARY)
        if self._next == b"=" and value[0] == "name":
            self._take()
            return "assign", value[1], self._expression()
        if value[0] != "call":
            raise Unsupported
        return "do", value

    def _if(self) -> Node:
        branches = []
        while self._take() != b"else":
            condition = self._expression()
            self._expect(b"then")
            branches.append((condition, self.block(b"elseif", b"else", b"end")))
            if self._next == b"end":
                self._take()
                return "if", branches, []
        other = self.block(b"end")
        self._take()
        return "if", branches, other

    def _expression(self, least: int = 0) -> Node:
        left = self._unary()
        while _BINARY.get(self._next, 0) > least:
            operator = self._take()
            left = "binary", operator, left, self._expression(_BINARY[operator])
        return left

    def _unary(self) -> Node:
        if self._next in (b"not", b"-", b"#"):
            return "unary", self._take(), self._expression(_UNARY)
        return self._suffixed(self._primary())

    def _primary(self) -> Node:
        token = self._next
        if token in (b"nil", b"true", b"false"):
            self._take()
            return "value", {b"nil": None, b"true": True, b"false": False}[token]
        if token.isdigit():
            return "value", float(self._take())
        if token[:1] in (b"'", b'"'):
            return "value", self._take()[1:-1]
        if token == b"(":
            self._take()
            value = self._expression()
            self._expect(b")")
            return "value_of", value  # an expression in brackets is not a call
        if token == b"{":
            self._take()
            return "table", self._list(b"}")
        return "name", self._name()

    def _suffixed(self, value: Node) -> Node:
        while True:
            match self._next:
                case b".":
                    self._take()
                    value = "index", value, ("value", self._name().encode())
                case b"[":
                    self._take()
                    value = "index", value, self._expression()
                    self._expect(b"]")
                case b"(":
                    self._take()
                    value = "call", value, self._list(b")")
                case _:
                    return value

    def _list(self, end: bytes) -> list[Node]:
        found: list[Node] = []
        while self._next != end:
            found.append(self._expression())
            if self._next != end:
                self._expect(b",")
        self._take()
        return found


class _Run:
    """Runs statements; all variables are in one scope, which is enough for scripts whose names do not repeat."""

    def __init__(self, keys: Sequence[bytes], args: Sequence[bytes], command: Command) -> None:
        self._command = command
        self._names: dict[str, Any] = {
            "KEYS": list(keys),
            "ARGV": list(args),
            "tonumber": _to_number,
            "redis": {b"call": self._call, b"pcall": self._pcall, b"status_reply": lambda text: {b"ok": text}},
            "string": {b"sub": _sub},
        }

    def block(self, block: list[Node]) -> None:
        for statement in block:
            match statement:
                case "return", value:
                    raise _Return(self._value(value))
                case "if", branches, other:
                    taken = (body for condition, body in branches if _is_true(self._value(condition)))
                    self.block(next(taken, other))
                case "for", number, name, each, body:
                    for at, item in enumerate(_list_of(self._value(each))[:_ROUNDS_MAX], 1):
                        self._names |= {number: float(at), name: item}
                        self.block(body)
                case "local" | "assign", name, value:
                    self._names[name] = self._value(value)
                case "do", call:
                    self._value(call)

    def _value(self, node: Node) -> Any:
        match node:
            case "value", value:
                return value
            case "value_of", inner:
                return self._value(inner)
            case "name", name:
                return self._names.get(name)
            case "table", items:
                return [self._value(item) for item in items]
            case "index", table, key:
                return _indexed(self._value(table), self._value(key))
            case "call", function, args:
                called = self._value(function)
                if not callable(called):
                    raise ScriptError("attempt to call a value that is no function")
                return called(*(self._value(arg) for arg in args))
            case "unary", operator, operand:
                return _unary(operator, self._value(operand))
            case "binary", b"and", left, right:
                value = self._value(left)
                return self._value(right) if _is_true(value) else value
            case "binary", b"or", left, right:
                value = self._value(left)
                return value if _is_true(value) else self._value(right)
            case "binary", operator, left, right:
                return _binary(operator, self._value(left), self._value(right))
        raise AssertionError(node)

    def _call(self, *args: Any) -> Any:
        return self._command([_argument(arg) for arg in args])

    def _pcall(self, *args: Any) -> Any:
        try:
            return self._call(*args)
        except ScriptError as error:
            return {b"err": str(error).encode()}


def _argument(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        if abs(value) >= _EXACT:
            raise Unsupported
        return b"%d" % value if value.is_integer() else b"%.17g" % value
    raise ScriptError("command arguments must be strings or integers")


def _is_true(value: Any) -> bool:
    return value is not None and value is not False


def _to_number(value: Any = None) -> float | None:
    if isinstance(value, float):
        return value
    if not isinstance(value, bytes):
        return None
    if not re.fullmatch(rb"-?[0-9]{1,15}", value):
        raise Unsupported  # how C reads it
    return float(value)


def _number(value: Any) -> float:
    found = _to_number(value)
    if found is None:
        raise ScriptError("attempt to perform arithmetic on a value that is no number")
    return found


def _list_of(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ScriptError("a table was expected")
    return value


def _indexed(table: Any, key: Any) -> Any:
    if isinstance(table, list):
        return table[int(key) - 1] if isinstance(key, float) and 1 <= key <= len(table) else None
    if isinstance(table, dict):
        return table.get(key)
    raise ScriptError("attempt to index a value that is no table")


def _unary(operator: bytes, value: Any) -> Any:
    if operator == b"not":
        return not _is_true(value)
    if operator == b"-":
        return -_number(value)
    if isinstance(value, bytes | list):
        return float(len(value))
    raise ScriptError("attempt to get the length of a value that has none")


def _binary(operator: bytes, left: Any, right: Any) -> Any:
    if operator in (b"==", b"~="):
        return (type(left) is type(right) and left == right) is (operator == b"==")
    if operator in (b"+", b"-"):
        return _number(left) + _number(right) * (1 if operator == b"+" else -1)
    if type(left) is not type(right) or not isinstance(left, float | bytes):
        raise ScriptError("attempt to compare other values than two numbers or strings")
    orders = {b"<": left < right, b"<=": left <= right, b">": left > right, b">=": left >= right}
    return orders[operator]


def _sub(text: Any, start: Any, end: Any) -> bytes:
    first, last = int(_number(start)), int(_number(end))
    if not isinstance(text, bytes) or first != 1:
        raise Unsupported
    return text[: last if last >= 0 else max(len(text) + last + 1, 0)]
