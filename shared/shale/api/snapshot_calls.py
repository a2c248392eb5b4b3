"""The calls about snapshots (docs/http.md 6)."""

from http import HTTPStatus

from shale.api.answers import is_packed, table_answer
from shale.api.app import SNAPSHOT_PREFIX, Route
from shale.api.call import Answer, Call
from shale.api.fields import durability, known_only, whole_number
from shale.api.limits import Limits
from shale.api.snapshots import Lease, Snapshots
from shale.service.bodies import decode

_FIELDS = frozenset({"lifetime_ms"})
_LIFETIME_MAX_MS = 1 << 53


class SnapshotCalls:
    """Open, renew and close."""

    def __init__(self, snapshots: Snapshots, limits: Limits) -> None:
        self._snapshots = snapshots
        self._limits = limits

    def routes(self) -> list[Route]:
        """What to serve."""
        return [
            Route("snapshots", {"POST": self.open}),
            Route("snapshot", {"PUT": self.renew, "DELETE": self.close}),
        ]

    async def open(self, call: Call) -> Answer:
        """Make a snapshot of now."""
        call.query()
        wanted = durability(call, default="memory")
        lifetime_ms, packed = await self._lifetime_ms(call)
        lease = await self._snapshots.open(wanted, lifetime_ms)
        location = b"/v1/snapshots/" + lease.id.encode()
        return table_answer(_fields(lease), packed=packed, status=HTTPStatus.CREATED, headers=[(b"location", location)])

    async def renew(self, call: Call) -> Answer:
        """Let it live longer."""
        call.query()
        lifetime_ms, packed = await self._lifetime_ms(call)
        return table_answer(_fields(self._snapshots.renew(_id(call), lifetime_ms)), packed=packed)

    async def close(self, call: Call) -> Answer:
        """Let go of it; one that is over is let go of as well."""
        call.query()
        await self._snapshots.close(_id(call))
        return Answer(HTTPStatus.NO_CONTENT)

    async def _lifetime_ms(self, call: Call) -> tuple[int | None, bool]:
        packed = is_packed(call)
        with await self._limits.body(call) as body:
            fields = decode(body.data, packed=packed) if body.data else {}
        known_only(fields, _FIELDS)
        value = fields.get("lifetime_ms")
        if value is not None:
            value = whole_number(value, "lifetime_ms", most=_LIFETIME_MAX_MS, what="a number of milliseconds")
        return value, packed


def _id(call: Call) -> str:
    return call.path.removeprefix(SNAPSHOT_PREFIX).decode("latin-1")


def _fields(lease: Lease) -> dict[str, object]:
    return {"id": lease.id, "seq": lease.moment.seq, "expires_ms": lease.expires_ms}
