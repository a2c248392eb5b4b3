"""Incremental parser of commands: arrays of bulk strings, and inline commands.

A command is ``*<count>\\r\\n`` and then ``count`` times ``$<length>\\r\\n<bytes>\\r\\n``; input that does not start
with ``*`` is an inline command (``shale.resp.protocol.inline``).  Source: the Redis protocol specification; clients
send the same in RESP2 and RESP3.

The parser keeps the position within an incomplete command, so it reads every byte once, however small the received
chunks are.
"""

from shale.resp.options import ParserLimits
from shale.resp.protocol.inline import split_inline

HEADER_BYTES_MAX = 32
"""Limit of a count or length line, with its type byte and line end."""

LINE_BYTES_MAX = 64 * 1024

ARGUMENT_OVERHEAD_BYTES = 48
"""Memory of an argument beyond its bytes, so that many short arguments count as large, too."""

_ARRAY, _BULK = ord("*"), ord("$")
_SMALL = {b"%d" % number: number for number in range(1024)}

_PLAIN_BYTES = 16 * 1024
_PLAIN_COUNTS = {b"*%d" % number: number for number in range(1, 64)}
_PLAIN_LENGTHS = {b"$%d" % number: number for number in range(4096)}
_PLAIN_LIMITS = ParserLimits(64, 4096, 64 * (4096 + ARGUMENT_OVERHEAD_BYTES))
_PLAIN_AGAIN = 32
"""After a command that the fast path cannot parse, this many commands use the general path."""
_UNKNOWN = -1


class ProtocolError(Exception):
    """The input is not a command, or too large; the connection must close."""


class Parser:
    """Parses the commands of one connection.  ``limits`` may change at any time."""

    def __init__(self, limits: ParserLimits) -> None:
        self.limits = limits
        self._data = b""
        self._place = 0
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._missing_bytes = 0
        """Bytes that must arrive before parsing can continue."""
        self._args: list[bytes] = []
        self._args_bytes = 0
        """Bytes of the parsed arguments, and of the argument whose length is known."""
        self._args_left = 0
        self._length = _UNKNOWN
        """Length of the bulk string whose bytes come next."""
        self._is_plain_after = 0
        self._error: ProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes that are buffered and not returned as commands yet."""
        return len(self._data) - self._place + self._parts_bytes + self._args_bytes - max(self._length, 0)

    @property
    def is_inside_command(self) -> bool:
        """Whether a part of a command has arrived."""
        return bool(self._args_left or self._place < len(self._data) or self._parts)

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._parts.append(data)
        self._parts_bytes += len(data)

    def take(self, count_max: int) -> list[list[bytes]]:
        """Return the next complete commands, each with at least one argument; none if more input is needed.

        Raises:
            ProtocolError: the input is invalid; earlier calls have returned all commands before it.
        """
        if self._error is not None:
            raise self._error
        if self._parts:
            if self._parts_bytes < self._missing_bytes:
                return []
            if self._place < len(self._data):
                self._parts.insert(0, self._data[self._place :])
            self._data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._place = self._parts_bytes = self._missing_bytes = 0
            self._parts.clear()
        commands: list[list[bytes]] = []
        try:
            self._parse(commands, count_max)
        except ProtocolError as error:
            self._error = error
            if not commands:
                raise
        if self._place == len(self._data):
            self._data, self._place = b"", 0
        return commands

    def _parse(self, commands: list[list[bytes]], count_max: int) -> None:
        """Append commands until there are ``count_max`` or the input ends."""
        data, end = self._data, len(self._data)
        while len(commands) < count_max and self._place < end:
            if not self._args_left:
                if data[self._place] != _ARRAY:
                    if not self._take_line(commands):
                        return
                    continue
                if self._is_plain_after == 0 and self._take_plain(commands, count_max):
                    continue
                self._is_plain_after = max(self._is_plain_after - 1, 0)
                if not self._begin_array():
                    return
                if not self._args_left:
                    continue
            if not self._fill():
                return
            commands.append(self._args)
            self._args, self._args_bytes = [], 0

    def _take_plain(self, commands: list[list[bytes]], count_max: int) -> bool:
        """Append commands of few short arguments without line ends; return ``False`` if the next one is different.

        Splitting the input at line ends yields these commands in a quarter of the time of the general path.
        """
        limits = self.limits
        if limits.argument_bytes < _PLAIN_LIMITS.argument_bytes or limits.command_bytes < _PLAIN_LIMITS.command_bytes:
            return False
        pieces = self._data[self._place : self._place + _PLAIN_BYTES].split(b"\r\n")
        whole, at, room = len(pieces) - 1, 0, count_max - len(commands)
        count_of, length_of = _PLAIN_COUNTS.get, _PLAIN_LENGTHS.get
        while at < whole and room:
            count = count_of(pieces[at])
            if count is None or count > limits.arguments:
                break
            after = at + 1 + 2 * count
            if after > whole:
                break
            args = pieces[at + 2 : after : 2]
            heads = pieces[at + 1 : after : 2]
            if any([length_of(head) != len(arg) for head, arg in zip(heads, args, strict=True)]):  # noqa: C419 - faster
                break
            commands.append(args)
            at, room = after, room - 1
        if at == 0:
            self._is_plain_after = _PLAIN_AGAIN
            return False
        self._place += sum(map(len, pieces[:at])) + 2 * at
        return True

    def _begin_array(self) -> bool:
        count = self._header("multibulk")
        if count is None:
            return False
        if count > self.limits.arguments:
            raise ProtocolError("invalid multibulk length")
        self._args_left = max(count, 0)
        return True

    def _fill(self) -> bool:
        """Read arguments until the command is complete; return ``False`` if the input ends first."""
        data, place, left, length = self._data, self._place, self._args_left, self._length
        args, limits, small, find = self._args, self.limits, _SMALL, self._data.find
        end = len(data)
        try:
            while left:
                if length < 0:
                    line_end = find(b"\r\n", place, place + HEADER_BYTES_MAX)
                    if line_end < 0 or data[place] != _BULK:
                        self._place = place
                        if self._header("bulk") is None:
                            return False
                    length = small.get(data[place + 1 : line_end], _UNKNOWN)
                    if length < 0 or length > limits.argument_bytes:
                        self._place = place
                        length = self._checked_length(self._header("bulk"))
                    self._args_bytes += length + ARGUMENT_OVERHEAD_BYTES
                    if self._args_bytes > limits.command_bytes:
                        raise ProtocolError(f"the command is larger than {limits.command_bytes} bytes")
                    place = line_end + 2
                value_end = place + length
                if value_end + 2 > end:
                    self._missing_bytes = value_end + 2 - end
                    return False
                if data[value_end] != 13 or data[value_end + 1] != 10:
                    raise ProtocolError("expected the end of a bulk string")
                args.append(data[place:value_end])
                place = value_end + 2
                length = _UNKNOWN
                left -= 1
        finally:
            self._place, self._args_left, self._length = place, left, length
        return True

    def _checked_length(self, length: int | None) -> int:
        assert length is not None
        if not 0 <= length <= self.limits.argument_bytes:
            raise ProtocolError("invalid bulk length")
        return length

    def _header(self, what: str) -> int | None:
        """Parse a count or length; return ``None`` if it is incomplete.  Only an array header is consumed."""
        data, place = self._data, self._place
        wanted = _ARRAY if what == "multibulk" else _BULK
        if place < len(data) and data[place] != wanted:
            raise ProtocolError(f"expected '{chr(wanted)}', got {chr(data[place])!r}")
        line_end = data.find(b"\r\n", place, place + HEADER_BYTES_MAX)
        if line_end < 0:
            if len(data) - place >= HEADER_BYTES_MAX:
                raise ProtocolError(f"too big {what} count string")
            return None
        digits = data[place + 1 : line_end]
        if not digits.removeprefix(b"-").isdigit():
            raise ProtocolError(f"invalid {what} length")
        if wanted == _ARRAY:
            self._place = line_end + 2
        return int(digits)

    def _take_line(self, commands: list[list[bytes]]) -> bool:
        """Consume an inline command, unless it is blank; return ``False`` if its line end has not arrived."""
        data, place = self._data, self._place
        limit = min(LINE_BYTES_MAX, self.limits.command_bytes)
        line_end = data.find(b"\n", place, place + limit)
        if line_end < 0:
            if len(data) - place >= limit:
                raise ProtocolError("too big inline request")
            return False
        words = split_inline(data[place:line_end])
        self._place = line_end + 1
        if words is None:
            raise ProtocolError("unbalanced quotes in request")
        if words:
            commands.append(words)
        return True
