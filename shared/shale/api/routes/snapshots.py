"""The snapshot routes (docs/reference/http.md 6)."""

from http import HTTPStatus

from shale.api.app import SNAPSHOT_PREFIX, Route
from shale.api.fields import durability, reject_unknown_fields, whole_number
from shale.api.limits import Limits
from shale.api.messages import Request, Response
from shale.api.responses import fields_response, is_msgpack_request
from shale.api.snapshot_leases import SnapshotLease, SnapshotLeases
from shale.service.http.documents import Fields

_FIELDS = frozenset({"lifetime_ms"})
_LIFETIME_MAX_MS = 1 << 53


class SnapshotRoutes:
    """The routes that open, renew and close snapshots."""

    def __init__(self, snapshots: SnapshotLeases, limits: Limits) -> None:
        self._snapshots = snapshots
        self._limits = limits

    def routes(self) -> list[Route]:
        """Return the routes of this group."""
        return [
            Route("snapshots", {"POST": self.open}),
            Route("snapshot", {"PUT": self.renew, "DELETE": self.close}),
        ]

    async def open(self, call: Request) -> Response:
        """Open a snapshot of the current state."""
        call.query()
        wanted = durability(call, default="memory")
        lifetime_ms, packed = await self._lifetime_ms(call)
        lease = await self._snapshots.open(wanted, lifetime_ms)
        location = b"/v1/snapshots/" + lease.id.encode()
        return fields_response(
            _fields(lease), packed=packed, status=HTTPStatus.CREATED, headers=[(b"location", location)]
        )

    async def renew(self, call: Request) -> Response:
        """Renew the lease of a snapshot."""
        call.query()
        lifetime_ms, packed = await self._lifetime_ms(call)
        return fields_response(_fields(self._snapshots.renew(_id(call), lifetime_ms)), packed=packed)

    async def close(self, call: Request) -> Response:
        """Close a snapshot; succeeds also if it has expired."""
        call.query()
        await self._snapshots.close(_id(call))
        return Response(HTTPStatus.NO_CONTENT)

    async def _lifetime_ms(self, call: Request) -> tuple[int | None, bool]:
        packed = is_msgpack_request(call)
        with await self._limits.body(call) as body:
            return await self._limits.decoded(
                body, _lifetime_of, packed=packed, elements_per_row=0, is_optional=True
            ), packed


def _lifetime_of(fields: Fields) -> int | None:
    reject_unknown_fields(fields, _FIELDS)
    value = fields.get("lifetime_ms")
    if value is None:
        return None
    return whole_number(value, "lifetime_ms", most=_LIFETIME_MAX_MS, what="a number of milliseconds")


def _id(call: Request) -> str:
    return call.path.removeprefix(SNAPSHOT_PREFIX).decode("latin-1")


def _fields(lease: SnapshotLease) -> dict[str, object]:
    return {"id": lease.id, "seq": lease.snapshot.seq, "expires_ms": lease.expires_ms}
