"""The route that tells which writer answers (docs/reference/http.md 1)."""

from shale.api.app import Route
from shale.api.messages import Request, Response
from shale.api.responses import fields_response, is_msgpack_request
from shale.engine.db import Db
from shale.engine.status import database_url, proof_age_s
from shale.types.writer_sign import writer_status


class WriterRoute:
    """The route of the writer's identity.

    A client that found the address of a writer in a manifest compares both: the address may belong to another database
    by now, and the manifest may be that of a copy.
    """

    def __init__(self, db: Db) -> None:
        self._db = db

    def routes(self) -> list[Route]:
        """Return the route."""
        return [Route("writer", {"GET": self.describe})]

    async def describe(self, call: Request) -> Response:
        """Return where the database is, the epoch, and what the sign of life tells; ``None`` without a sign.

        ``proved_s``: the seconds since the writer has proved its epoch in the store.
        """
        call.query()
        status = writer_status(self._db.status.manifest, now_ms=0)
        identity = status.identity
        fields = {
            "database": database_url(self._db.status),
            "epoch": self._db.status.writer_epoch,
            "holder": None if identity is None else identity.holder,
            "host": None if identity is None else identity.host,
            "since_s": None if identity is None else identity.since_s,
            "proved_s": round(proof_age_s(self._db.status), 3),
        }
        return fields_response(fields, packed=is_msgpack_request(call))
