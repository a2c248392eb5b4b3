"""The calls that read, on anything that can be read (docs/operations.md 4)."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from shale.api.answers import table_answer
from shale.api.app import Route
from shale.api.fields import binary, key_in_path, known_only, to_base64
from shale.api.limits import Limits
from shale.api.scan_stream import LineStream, scan_lines, scan_request
from shale.engine.reads import Reads
from shale.errors import ErrorKind
from shale.service.bodies import decode, is_msgpack
from shale.service.problems import Problem, bad_request, too_large


class ReadCalls:
    """``get``, ``get-many`` and ``scan``."""

    def __init__(self, db: Reads, limits: Limits) -> None:
        self._db = db
        self._limits = limits

    def routes(self) -> list[Route]:
        """What to serve."""
        return [
            Route("kv", {"GET": self.get}),
            Route("get-many", {"POST": self.get_many}),
            Route("scan", {"POST": self.scan}),
        ]

    async def get(self, request: Request) -> Response:
        """One row."""
        row = await self._limits.timed("get", self._db.get_row(key_in_path(request.scope)))
        if row is None:
            raise Problem(HTTPStatus.NOT_FOUND, "there is no such key", kind=ErrorKind.DATA.value)
        headers = {"X-Shale-Seq": str(row.seq)}
        if row.create_ts is not None:
            headers["X-Shale-Create-Ts"] = str(row.create_ts)
        if row.expire_ts is not None:
            headers["X-Shale-Expire-Ts"] = str(row.expire_ts)
        return Response(row.value, headers=headers, media_type="application/octet-stream")

    async def get_many(self, request: Request) -> Response:
        """Many rows in one trip, in the order of the keys."""
        packed = is_msgpack(request)
        with await self._limits.body(request) as body:
            fields = decode(body.data, packed=packed)
        known_only(fields, frozenset({"keys"}))
        wanted = fields.get("keys")
        if not isinstance(wanted, list | tuple):
            raise bad_request("keys: a list of keys is required")
        if len(wanted) > self._limits.rows_max:
            raise too_large(f"keys: {len(wanted)} keys; at most {self._limits.rows_max} are taken")
        keys = [binary(key, f"keys[{place}]", packed=packed) for place, key in enumerate(wanted)]
        values = await self._db.get_many(keys)
        if packed:
            return table_answer({"values": values}, packed=True)
        texts = [to_base64(value).decode() if value is not None else None for value in values]
        return table_answer({"values": texts}, packed=False)

    async def scan(self, request: Request) -> Response:
        """A range of rows, streamed."""
        with await self._limits.body(request) as body:
            fields = decode(body.data or bytearray(b"{}"), packed=False)
        wanted = scan_request(fields)
        lines = scan_lines(self._db, wanted)
        first = await self._limits.timed("scan", anext(lines))
        return LineStream(first, lines)
