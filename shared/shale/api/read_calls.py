"""The calls that read, on anything that can be read (docs/http.md 2 and 5)."""

from collections.abc import Sequence
from http import HTTPStatus

from shale.api.answers import accepted, is_packed, table_answer
from shale.api.app import Route
from shale.api.call import OCTETS, Answer, Call, RawHeader
from shale.api.fields import binary, durability, key_in_path, known_only, to_base64
from shale.api.limits import Limits
from shale.api.moments import Moment
from shale.api.scan_formats import FORMATS
from shale.api.scan_request import ScanRequest, scan_request
from shale.api.scan_stream import ScanStream, scan_pieces
from shale.api.scan_token import ScanToken, encode_token
from shale.api.snapshots import Snapshots
from shale.engine.read_point import Durability
from shale.engine.reads import Reads
from shale.errors import ErrorKind, ValuesTooLarge
from shale.service.bodies import decode
from shale.service.problems import Problem, bad_request, too_large

SNAPSHOT = "snapshot"


class ReadCalls:
    """``get``, ``get-many`` and ``scan``."""

    def __init__(self, db: Reads, snapshots: Snapshots, limits: Limits) -> None:
        self._db = db
        self._snapshots = snapshots
        self._limits = limits

    def routes(self) -> list[Route]:
        """What to serve."""
        return [
            Route("kv", {"GET": self.get, "HEAD": self.get}),
            Route("get-many", {"POST": self.get_many}),
            Route("scan", {"POST": self.scan}),
        ]

    async def get(self, call: Call) -> Answer:
        """One row."""
        lookup = self._source(call).get_row(key_in_path(call.path), durability=durability(call, default="memory"))
        row = await self._limits.timed("get", lookup)
        if row is None:
            raise Problem(HTTPStatus.NOT_FOUND, "there is no such key", kind=ErrorKind.DATA.value)
        headers = [(b"x-shale-seq", b"%d" % row.seq)]
        if row.create_ts is not None:
            headers.append((b"x-shale-create-ts", b"%d" % row.create_ts))
        if row.expire_ts is not None:
            headers.append((b"x-shale-expire-ts", b"%d" % row.expire_ts))
        return Answer(HTTPStatus.OK, row.value, headers=headers, media_type=OCTETS)

    async def get_many(self, call: Call) -> Answer:
        """Many rows in one trip, in the order of the keys."""
        source, wanted_durability = self._source(call), durability(call, default="memory")
        packed = is_packed(call)
        with await self._limits.body(call) as body:
            fields = decode(body.data, packed=packed)
        known_only(fields, frozenset({"keys"}))
        wanted = fields.get("keys")
        if not isinstance(wanted, list | tuple):
            raise bad_request("keys: a list of keys is required")
        if len(wanted) > self._limits.rows_max:
            raise too_large(f"keys: {len(wanted)} keys; at most {self._limits.rows_max} are taken")
        keys = [binary(key, f"keys[{place}]", packed=packed) for place, key in enumerate(wanted)]
        # Once each: the same large value a thousand times would take a thousand times its room.
        distinct = list(dict.fromkeys(keys))
        most = self._limits.answer_max_bytes if len(keys) > 1 else None
        try:
            read = await source.get_many(distinct, durability=wanted_durability, max_bytes=most)
        except ValuesTooLarge as error:
            raise _too_large_answer(str(error)) from error
        found = dict(zip(distinct, read, strict=True))
        values = [found[key] for key in keys]
        self._require_room(values)
        if packed:
            return table_answer({"values": values}, packed=True)
        texts = [to_base64(value).decode() if value is not None else None for value in values]
        return table_answer({"values": texts}, packed=False)

    async def scan(self, call: Call) -> ScanStream:
        """A range of rows, streamed."""
        snapshot_id = call.query(SNAPSHOT).get(SNAPSHOT)
        wanted_durability = durability(call, default="memory")
        media_type, packed = accepted(call, FORMATS), is_packed(call)
        with await self._limits.body(call) as body:
            fields = decode(body.data, packed=packed) if body.data else {}
        request = scan_request(fields, packed=packed)
        resumed = request.resumed
        if snapshot_id is None and resumed is not None:
            snapshot_id = resumed.snapshot
        if snapshot_id is not None:
            moment = self._snapshots.lease(snapshot_id).moment
            return await self._stream(moment, request, snapshot_id, wanted_durability, media_type)
        moment = await self._snapshots.take(wanted_durability)
        try:
            return await self._stream(moment, request, None, wanted_durability, media_type)
        finally:
            await moment.close()  # the scan has begun, and holds what it needs

    async def _stream(
        self, moment: Moment, request: ScanRequest, snapshot_id: str | None, wanted: Durability, media_type: str
    ) -> ScanStream:
        same_state = _same_state(moment, request)
        encoder = FORMATS[media_type]()
        scan = moment.scan(**request.arguments(), durability=wanted)
        seq = moment.seq

        def token(behind: bytes | None) -> str:
            return encode_token(ScanToken(scan=request.name, seq=seq, snapshot=snapshot_id, behind=behind))

        pieces = scan_pieces(scan, encoder, limit=request.limit, token=token)
        first = await self._limits.timed("scan", anext(pieces, None))
        headers: list[RawHeader] = [
            (b"x-shale-seq", b"%d" % seq),
            (b"x-shale-resume", token(request.after).encode()),
        ]
        if same_state is not None:
            headers.append((b"x-shale-same-state", b"true" if same_state else b"false"))
        return ScanStream(encoder, first, pieces, headers=headers, patience_s=self._limits.time_max_s)

    def _require_room(self, values: Sequence[bytes | None]) -> None:
        most = self._limits.answer_max_bytes
        if len(values) > 1 and sum([len(value) for value in values if value is not None]) > most:
            raise _too_large_answer(f"the values together have more than {most} bytes; ask for fewer keys")

    def _source(self, call: Call) -> Reads:
        """What is read: now, or the snapshot that the query names."""
        if not call.scope["query_string"]:
            return self._db
        snapshot_id = call.query(SNAPSHOT).get(SNAPSHOT)
        return self._db if snapshot_id is None else self._snapshots.lease(snapshot_id).moment


def _too_large_answer(detail: str) -> Problem:
    """The client asked for more than there is room for."""
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def _same_state(moment: Moment, request: ScanRequest) -> bool | None:
    """Whether a resumed scan goes on in the state in which it began; ``None`` if it begins.

    Raises:
        Problem: it must, and does not (410).
    """
    if request.resumed is None:
        return None
    same_state = moment.seq == request.resumed.seq
    if request.same_state and not same_state:
        raise Problem(
            HTTPStatus.GONE,
            f"the state has moved on from seq {request.resumed.seq} to {moment.seq}; scan under a snapshot to resume",
            kind=ErrorKind.DATA.value,
        )
    return same_state
