"""The read routes (docs/reference/http.md 2 and 5)."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from shale.api.app import Route
from shale.api.fields import binary, durability, key_from_path, reject_unknown_fields
from shale.api.limits import Limits
from shale.api.messages import OCTETS, RawHeader, Request, Response
from shale.api.responses import fields_response, is_msgpack_request, negotiate_media_type, values_response
from shale.api.scan.formats import FORMATS
from shale.api.scan.page import PAGE_ROWS, page_fields, read_page
from shale.api.scan.request import ScanRequest, scan_request
from shale.api.scan.stream import ScanSource, ScanStream, scan_pieces
from shale.api.scan.token import ScanToken, encode_token
from shale.api.snapshot_leases import SnapshotHandle, SnapshotLeases
from shale.concurrency.byte_budget import ByteShare
from shale.concurrency.loop_turns import LoopTurns
from shale.engine.read.read_point import Durability
from shale.engine.read.reads import Reads
from shale.errors import ErrorKind, ResponseTooLarge
from shale.service.http.documents import Fields
from shale.service.http.problems import Problem, bad_request, too_large

SNAPSHOT = "snapshot"


class ReadRoutes:
    """``get``, ``get-many``, ``scan`` and ``scan-page``."""

    def __init__(self, db: Reads, snapshots: SnapshotLeases, limits: Limits) -> None:
        self._db = db
        self._snapshots = snapshots
        self._limits = limits
        self._scan_turns = LoopTurns()

    def routes(self) -> list[Route]:
        """Return the routes of this group."""
        return [
            Route("kv", {"GET": self.get, "HEAD": self.get}),
            Route("get-many", {"POST": self.get_many}),
            Route("scan", {"POST": self.scan}),
            Route("scan-page", {"POST": self.scan_page}),
        ]

    async def get(self, call: Request) -> Response:
        """Read one row."""
        key = key_from_path(call.path)
        source, wanted = self._source(call), durability(call, default="memory")
        while True:
            row = await self._limits.timed("get", source.get_row(key, durability=wanted))
            if row is None:
                raise Problem(HTTPStatus.NOT_FOUND, "no such key", kind=ErrorKind.DATA.value)
            value = self._limits.value_to_send(key, row)
            if value is not None:
                break
            size_bytes, row = len(row.value), None  # what waits keeps no value
            await self._limits.room_for_value(size_bytes)
        headers = [(b"x-shale-seq", b"%d" % row.seq)]
        if row.create_ts is not None:
            headers.append((b"x-shale-create-ts", b"%d" % row.create_ts))
        if row.expire_ts is not None:
            headers.append((b"x-shale-expire-ts", b"%d" % row.expire_ts))
        return Response(HTTPStatus.OK, value, headers=headers, media_type=OCTETS)

    async def get_many(self, call: Request) -> Response:
        """Read many rows, in the order of the keys."""
        source, wanted_durability = self._source(call), durability(call, default="memory")
        packed = is_msgpack_request(call)
        with await self._limits.body(call) as body:
            take = partial(_keys, packed=packed, max_keys=self._limits.rows_max)
            keys = await self._limits.decoded(body, take, packed=packed, elements_per_row=1)
        # Read each key once: a large value requested a thousand times would take a thousand times its memory.
        distinct = list(dict.fromkeys(keys))
        many = partial(self._many, source, keys, distinct, wanted_durability, packed=packed)
        with suppress(ResponseTooLarge):
            return await self._limits.memory.read_unsized(many)
        async with self._limits.large_response():
            with await self._limits.scan_share(call):
                try:
                    # A single value is never too large.
                    most = self._limits.answer_max_bytes if len(keys) > 1 else None
                    response = await many(most)
                except ResponseTooLarge as error:
                    raise _too_large_answer(str(error)) from error
                return await self._limits.hold_body(response)

    async def _many(
        self,
        source: Reads,
        keys: list[bytes],
        distinct: list[bytes],
        wanted: Durability,
        most: int | None,
        *,
        packed: bool,
    ) -> Response:
        """Return the values of many keys.

        Raises:
            ResponseTooLarge: the values have more than ``most`` bytes.
        """
        values = _in_order(keys, distinct, await source.get_many(distinct, durability=wanted, max_bytes=most))
        if most is not None and sum([len(value) for value in values if value is not None]) > most:
            raise ResponseTooLarge(f"the values together have more than {most} bytes; ask for fewer keys")
        return await values_response(values, packed=packed)

    async def scan(self, call: Request) -> ScanStream:
        """Scan a range of rows as a stream."""
        media_type = negotiate_media_type(call, FORMATS)
        request, snapshot_id, wanted, _ = await self._scan_request(call)
        share = await self._limits.scan_share(call)
        try:
            async with self._scanned(snapshot_id, wanted) as snapshot:
                return await self._stream(snapshot, request, snapshot_id, wanted, (media_type, share))
        except BaseException:
            share.reduce_to(0)
            raise

    async def scan_page(self, call: Request) -> Response:
        """Read one page of a range as one document, for clients that read no streams."""
        request, snapshot_id, wanted, packed = await self._scan_request(call)
        limit = min(PAGE_ROWS if request.limit is None else request.limit, self._limits.rows_max)
        memory = self._limits.memory
        with await self._limits.scan_share(call):
            async with self._scanned(snapshot_id, wanted) as snapshot:
                headers, token = _scan_state(snapshot, request, snapshot_id)
                arguments = replace(request, limit=limit).arguments()
                scan = snapshot.scan(**arguments, durability=wanted, read_ahead_bytes=memory.read_ahead_bytes)
                page = await self._limits.timed("scan", read_page(scan, limit, bytes_max=memory.scan_bytes))
            resume = token(page.rows[-1].key) if page.has_more else None
            response = fields_response(page_fields(page, resume, packed=packed), packed=packed, headers=headers)
            return await self._limits.hold_body(response)

    async def _scan_request(self, call: Request) -> tuple[ScanRequest, str | None, Durability, bool]:
        """Return the request, the id of the snapshot to read, the durability, and whether the body is msgpack."""
        snapshot_id = call.query(SNAPSHOT).get(SNAPSHOT)
        wanted, packed = durability(call, default="memory"), is_msgpack_request(call)
        with await self._limits.body(call) as body:
            take = partial(scan_request, packed=packed)
            request = await self._limits.decoded(body, take, packed=packed, elements_per_row=0, is_optional=True)
        if snapshot_id is None and request.resumed is not None:
            snapshot_id = request.resumed.snapshot
        return request, snapshot_id, wanted, packed

    @asynccontextmanager
    async def _scanned(self, snapshot_id: str | None, wanted: Durability) -> AsyncIterator[SnapshotHandle]:
        """Return the snapshot that a scan reads; an open scan holds the state that it needs."""
        if snapshot_id is not None:
            yield self._snapshots.lease(snapshot_id).snapshot
            return
        snapshot = await self._snapshots.take(wanted)
        try:
            yield snapshot
        finally:
            await snapshot.close()

    async def _stream(
        self,
        snapshot: SnapshotHandle,
        request: ScanRequest,
        snapshot_id: str | None,
        wanted: Durability,
        how: tuple[str, ByteShare],
    ) -> ScanStream:
        headers, token = _scan_state(snapshot, request, snapshot_id)
        headers.append((b"x-shale-resume", token(request.after).encode()))
        media_type, share = how
        memory = self._limits.memory
        encoder = FORMATS[media_type](memory.piece_bytes, self._scan_turns)
        scan = snapshot.scan(**request.arguments(), durability=wanted, read_ahead_bytes=memory.read_ahead_bytes)
        pieces = scan_pieces(scan, encoder, limit=request.limit, token=token)
        first = await self._limits.timed("scan", anext(pieces, None))
        source = ScanSource(scan, encoder, share, memory)
        return ScanStream(source, first, pieces, headers=headers, timeout_s=self._limits.send_timeout_s)

    def _source(self, call: Request) -> Reads:
        """Return the source of reads: the database, or the snapshot that the query names."""
        if not call.scope["query_string"]:
            return self._db
        snapshot_id = call.query(SNAPSHOT).get(SNAPSHOT)
        return self._db if snapshot_id is None else self._snapshots.lease(snapshot_id).snapshot


def _keys(fields: Fields, *, packed: bool, max_keys: int) -> list[bytes]:
    """Return the keys of a ``get-many``.

    Raises:
        Problem: the body is malformed (400) or has too many keys (413).
    """
    reject_unknown_fields(fields, frozenset({"keys"}))
    wanted = fields.get("keys")
    if not isinstance(wanted, list | tuple):
        raise bad_request("keys: a list of keys is required")
    if len(wanted) > max_keys:
        raise too_large(f"keys: {len(wanted)} keys; the limit is {max_keys}")
    return [binary(key, f"keys[{place}]", packed=packed) for place, key in enumerate(wanted)]


def _in_order(keys: list[bytes], distinct: list[bytes], read: list[bytes | None]) -> list[bytes | None]:
    found = dict(zip(distinct, read, strict=True))
    return [found[key] for key in keys]


def _too_large_answer(detail: str) -> Problem:
    """Return the 413 for a response that would exceed the limit."""
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def _scan_state(
    snapshot: SnapshotHandle, request: ScanRequest, snapshot_id: str | None
) -> tuple[list[RawHeader], Callable[[bytes | None], str]]:
    """Return the headers that describe the state of a scan, and the function that makes its resume tokens."""
    same_state = _same_state(snapshot, request)
    seq = snapshot.seq
    headers: list[RawHeader] = [(b"x-shale-seq", b"%d" % seq)]
    if same_state is not None:
        headers.append((b"x-shale-same-state", b"true" if same_state else b"false"))

    def token(last_key: bytes | None) -> str:
        return encode_token(ScanToken(scan=request.name, seq=seq, snapshot=snapshot_id, last_key=last_key))

    return headers, token


def _same_state(snapshot: SnapshotHandle, request: ScanRequest) -> bool | None:
    """Return whether a resumed scan continues in its first state; ``None`` for a new scan.

    Raises:
        Problem: the client requires the same state, and it has changed (410).
    """
    if request.resumed is None:
        return None
    same_state = snapshot.seq == request.resumed.seq
    if request.same_state and not same_state:
        raise Problem(
            HTTPStatus.GONE,
            f"the state has changed from seq {request.resumed.seq} to {snapshot.seq}; scan a snapshot to resume",
            kind=ErrorKind.DATA.value,
        )
    return same_state
