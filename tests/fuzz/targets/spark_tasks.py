"""What goes between Spark's driver and its tasks: plans, results, errors, and the connections of a compaction."""

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import anyio
import msgpack

from shale.engine.location import DatabaseLocation
from shale.errors import CorruptionError, InvalidRequestError, ShaleError, UnavailableError
from shale.format.sst.filter_policy import BloomPolicy, DelimitedPrefix, FixedPrefix
from shale.sst.options import SstOptions
from shale.store.options import RetryPolicy, StoreOptions
from shale.types import EVERYTHING, KeyRange, Seq, Sst, Ulid
from shale_compactor.execution.job import plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import TransformNames
from shale_spark.compaction import messages
from shale_spark.compaction.range_output import RangeOutput
from shale_spark.compaction.task_plan import TaskPlan, decode_plan, encode_plan, trim_job
from shale_spark.compaction.task_server import TaskServer
from shale_spark.errors import decode_error, encode_error
from shale_spark.load.load_task import decode_result, encode_result
from shale_spark.load.rules import LoadTaskResult
from tests.fuzz import loop, samples
from tests.fuzz.mutation import NUMBERS, mutate_bytes
from tests.fuzz.oracle import require_equal
from tests.fuzz.target import Difference, Target
from tests.unit.compactor.values import entry, manifest, spec, sst, tree

_OF_THE_DRIVER = (ShaleError, AssertionError, LookupError, ValueError, TypeError, AttributeError, StopIteration)
"""Plans and results come from the same job, so their readers promise no class; Spark ends the task or the job.
What is found here is a crash, a hang, memory, and an answer that is not what the bytes say.
"""
_TOKEN = "ab" * 16
_RANGES = 2
_ID_END = 1 << 128


def _plan(data: bytes) -> None:
    """Read a plan; what is read can be written and read again."""
    stored = encode_plan(decode_plan(_without_key_file(data)))
    require_equal("a plan, written and read again", encode_plan(decode_plan(stored)), stored)


def _without_key_file(data: bytes) -> bytes:
    fields = msgpack.unpackb(data)
    if fields["where"]["key_file"] is None:
        return data
    fields["where"]["key_file"] = None  # a path, which would be read
    return bytes(msgpack.packb(fields) or b"")


def _plans() -> list[bytes]:
    options = StoreOptions(retry=RetryPolicy(retries_max=3), config={"aws_endpoint": "http://127.0.0.1:1"})
    filters = (
        BloomPolicy(bits_per_key=12),
        BloomPolicy(10, FixedPrefix("three", 3)),
        BloomPolicy(10, DelimitedPrefix("parts", b"/")),
    )
    found = []
    for segment, keys in ((b"", EVERYTHING), (b"s", KeyRange.half_open(b"a", b"m"))):
        trees = {"s": tree((4, 3), (2, 1))} if segment else {}
        job = plan_job(
            entry(500, spec(l0=(4, 3), runs=(2,), to=2, segment=segment)), manifest(tree((4, 3), (2, 1)), **trees)
        )
        plan = TaskPlan(
            where=DatabaseLocation("s3://bucket", "db", None, options),
            job=trim_job(job, keys),
            index=1,
            range=keys,
            retention_min_seq=Seq(7),
            options=ExecutorOptions(sst=SstOptions(filter_policies=filters), memory_bytes=99),
            transforms=TransformNames(merge_operator="counter", compaction_filters=("a:b",)),
            driver=("127.0.0.1", 4711),
            token=_TOKEN,
        )
        found.append(encode_plan(plan))
    return found


def _result(data: bytes) -> None:
    """Read the result of a task of a load; the SSTs are those of the manifest inside, in their order."""
    found = decode_result(data)
    if all(type(each) is int for each in (found.rows, found.repeated, found.expired, found.raw_bytes)):
        require_equal("a result, written and read again", decode_result(encode_result(found)), found)


def _results() -> list[bytes]:
    ssts = (sst(5, keys=(b"a", b"c")), sst(6, keys=(b"d", b"z")))
    results = (LoadTaskResult(), LoadTaskResult(ssts=ssts, rows=9, repeated=1, expired=2, raw_bytes=300))
    return [encode_result(each) for each in results]


def _error(data: bytes) -> None:
    """Read an error of a task: always an error of Shale, with the message that was sent."""
    found = decode_error(data)
    if not isinstance(found, ShaleError):
        raise Difference(f"an error of a task is a {type(found).__name__}")
    fields = msgpack.unpackb(data)
    if "args" not in fields["state"]:
        require_equal("the message of an error", found.args, (fields["message"],))
    encode_error(found)


def _errors() -> list[bytes]:
    every: Sequence[ShaleError] = (
        *(InvalidRequestError("no"), UnavailableError("gone"), CorruptionError("bad", path="db/x", offset=7)),
    )
    return [encode_error(each) for each in every]


def _message(data: bytes) -> None:
    """Decode a message, and that message encoded again."""
    found = messages.decode(data)
    if type(found).__name__ not in messages.__dict__:
        raise Difference(f"a message is a {type(found).__name__}")
    if all(each < _ID_END for each in _ids(found)):
        again = messages.decode(messages.encode(found)[4:])
        require_equal("a message, encoded and decoded again", repr(again), repr(found))


def _ids(value: Any) -> list[int]:
    """Return all ids inside a message."""
    if isinstance(value, Ulid):
        return [value]
    if isinstance(value, Sst):
        return [value.id]
    parts: Sequence[Any] = ()
    if isinstance(value, tuple):
        parts = value
    elif isinstance(value, dict):
        parts = (*value, *value.values())
    elif hasattr(value, "__slots__") and type(value).__module__ == messages.__name__:
        parts = [getattr(value, name) for name in value.__slots__]
    return [found for each in parts for found in _ids(each)]


class _Connection:
    """A connection whose other end sends these bytes and then is gone; in pieces, as a network delivers them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.sent: list[bytes] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        if not self._data:
            raise anyio.EndOfStream
        piece, self._data = self._data[: min(max_bytes, 700)], self._data[min(max_bytes, 700) :]
        return piece

    async def send(self, data: bytes) -> None:
        self.sent.append(data)


class _Listener:
    """Counts the SSTs that were reported of each range."""

    def __init__(self) -> None:
        self.started_ranges: list[int] = []
        self.ssts = [0] * _RANGES

    def started(self, number: int) -> None:
        self.started_ranges.append(number)

    def reported(self, number: int, report: messages.TaskReport) -> None:
        self.ssts[number] += len(report.ssts)


def _server(data: bytes) -> None:
    """Serve connections one after the other: a list of lists of messages, of which each is bytes."""
    try:
        connections = msgpack.unpackb(data)
        streams = [b"".join(len(body).to_bytes(4, "big") + body for body in bodies) for bodies in connections]
    except (ValueError, TypeError, msgpack.UnpackException):
        return
    listener, outputs = _Listener(), [RangeOutput() for _ in range(_RANGES)]
    server = TaskServer(outputs, _TOKEN, listener)
    for stream, bodies in zip(streams, connections, strict=True):
        before = [(list(each.ssts), each.is_done) for each in outputs]
        connection: Any = _Connection(stream)
        if _is_typed(bodies):
            loop.run(server._handle(connection))
            _check_server(server, outputs, listener, connection, before, bodies)


def _is_typed(bodies: list[bytes]) -> bool:
    """Return whether all messages after the right token have fields of the types that tasks send."""
    try:
        found = [messages.decode(body) for body in bodies]
    except CorruptionError:
        found = [each for body in bodies[:1] if (each := _decoded(body)) is not None]
        if not found:
            return True
    if not isinstance(found[0] if found else None, messages.TaskHello) or found[0].token != _TOKEN:
        return True
    return len(found) == len(bodies) and all(map(_has_types, found[1:]))


def _decoded(body: bytes) -> messages.Message | None:
    try:
        return messages.decode(body)
    except CorruptionError:
        return None


def _has_types(message: messages.Message) -> bool:
    match message:
        case messages.TaskReport(ssts=tuple() as ssts):
            return all(isinstance(each, Sst) for each in ssts)
        case messages.TaskFailed(error=bytes() as error):
            try:
                decode_error(error)
            except CorruptionError:
                return False
            return True
    return not isinstance(message, messages.TaskReport | messages.TaskFailed)


def _check_server(
    server: TaskServer,
    outputs: list[RangeOutput],
    listener: _Listener,
    connection: _Connection,
    before: list[tuple[list[Sst], bool]],
    bodies: list[bytes],
) -> None:
    hello = _decoded(bodies[0]) if bodies else None
    is_ours = isinstance(hello, messages.TaskHello) and hello.token == _TOKEN
    after = [(list(each.ssts), each.is_done) for each in outputs]
    if not is_ours and (after != before or connection.sent):
        raise Difference("a connection without the token changes a range or gets an answer")
    for number, ((ssts, was_done), output) in enumerate(zip(before, outputs, strict=True)):
        if output.ssts[: len(ssts)] != ssts or (was_done and (not output.is_done or output.ssts != ssts)):
            raise Difference(f"a connection changes what a range has: {number}")
        if output.owner is not None:
            raise Difference(f"an attempt that is gone owns a range: {output.owner!r}")
        entries = [(each.info.first_entry, each.info.last_entry) for each in output.ssts]
        for (_, end), (start, _) in pairwise(entries):
            if end is not None and start is not None and end > start and server.failure is None:
                raise Difference("SSTs of a range overlap, and the job goes on")
    for answer in connection.sent:
        messages.decode(answer[4:])


def _packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value) or b"")


def _body(message: messages.Message) -> bytes:
    return messages.encode(message)[4:]


_KEYS: Sequence[bytes] = [letter.encode() for letter in string.ascii_lowercase]


def _ssts(rng: random.Random, count: int) -> tuple[Sst, ...]:
    found = []
    for number in range(count):
        first, last = sorted(rng.sample(range(26), 2))
        found.append(sst(rng.randrange(1, 99) + number, keys=(_KEYS[first], _KEYS[last])))
    return tuple(found)


def _attempt(rng: random.Random) -> list[bytes]:
    """Return the messages of an attempt: most of them as a task sends them."""
    hello = messages.TaskHello(rng.choice((_TOKEN,) * 9 + ("", "other")), rng.choice((0, 0, 1, 2)), rng.randrange(4))
    said: list[messages.Message] = [hello]
    count, last = 0, None
    for _ in range(rng.randrange(4)):
        ssts = _ssts(rng, rng.choice((0, 1, 1, 2)))
        position = count if rng.random() < 0.9 else rng.choice((0, 1, -1, 2**64 - 1))
        said.append(messages.TaskReport(position, ssts, 10, 20, (1, 2), 3, 4, "why"))
        count, last = count + len(ssts), ssts[-1].id if ssts else last
    if rng.random() < 0.5:
        said.append(messages.RangeFinished(count, last if rng.random() < 0.9 else None))
    if rng.random() < 0.1:
        said.append(messages.TaskFailed(rng.choice(_errors())))
    return [_body(each) for each in said]


def _mutate_server(rng: random.Random, data: bytes) -> bytes:
    """Add, repeat or drop a connection or a message, or change the bytes of one."""
    try:
        connections = msgpack.unpackb(data)
        at = rng.randrange(len(connections))
        match rng.randrange(5):
            case 0:
                connections = [*connections[-5:], _attempt(rng)]
            case 1:
                connections[at] = _attempt(rng)
            case 2:
                connections[at].append(rng.choice(connections[at]))
            case 3:
                number = rng.randrange(len(connections[at]))
                connections[at][number] = mutate_message(rng, connections[at][number])
            case _:
                del connections[at][rng.randrange(len(connections[at]))]
        return _packed(connections)
    except (ValueError, TypeError, AttributeError, IndexError, msgpack.UnpackException):
        return mutate_bytes(rng, data)


def mutate_message(rng: random.Random, data: bytes) -> bytes:
    """Change one value of a msgpack document, also inside its extension types and its packed bytes."""
    try:
        return _packed(_changed(rng, msgpack.unpackb(data, strict_map_key=False)))
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
        return mutate_bytes(rng, data)


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, msgpack.ExtType):
        code = value.code if rng.random() < 0.9 else rng.choice((0, 1, 2, 3, 127))
        return msgpack.ExtType(code, mutate_message(rng, value.data))
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        if rng.random() < 0.1:
            return rng.choice((value[:at] + value[at + 1 :], [*value, value[at]]))
        return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        if rng.random() < 0.1:
            return {each: value[each] for each in value if each != name}
        return {**value, name: _changed(rng, value[name])}
    if isinstance(value, bytes) and rng.random() < 0.7:
        return mutate_bytes(rng, value)
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.7:
        return rng.choice([each for each in NUMBERS if -(1 << 63) <= each < 1 << 64])
    return rng.choice((None, True, 0, -1, 1.5, "", "a", b"", b"a", [], {}, [0], value))


def _servers() -> list[bytes]:
    rng = random.Random(1)
    return [_packed([_attempt(rng) for _ in range(count)]) for count in (1, 1, 2, 3, 5)]


def _messages() -> list[bytes]:
    _, info = samples.sst(1)
    one = Sst(id=Ulid(7), info=info)
    every: list[messages.Message] = [
        messages.TaskHello("token", 1, 2),
        messages.TaskReport(3, (one, replace(one, id=Ulid(8))), 10, 20, (1, 2), 3, 4, "why"),
        messages.RangeFinished(1, Ulid(7)),
        messages.TaskFailed(b"error"),
        messages.RangeStart(1, one),
        messages.RangeStart(0, None),
        messages.ReportAccepted(),
        messages.AttemptRefused(),
        messages.RangeDone(),
    ]
    return [_body(each) for each in every]


def targets() -> list[Target]:
    compaction = "shale_spark.compaction"
    wire, plans = f"{compaction}.messages", f"{compaction}.task_plan"
    server = (f"{compaction}.task_server", f"{compaction}.range_output")
    load, errors = "shale_spark.load.load_task", "shale_spark.errors"
    corrupt = (CorruptionError,)
    make: Callable[..., Target] = Target
    return [
        make("spark message", _message, _messages, corrupt, (wire,), mutate_message),
        make("spark task server", _server, _servers, (), (*server, wire), _mutate_server),
        make("spark task plan", _plan, _plans, _OF_THE_DRIVER, (plans,), mutate_message),
        make("spark task result", _result, _results, _OF_THE_DRIVER, (load,), mutate_message),
        make("spark task error", _error, _errors, (ShaleError,), (errors,), mutate_message),
    ]
