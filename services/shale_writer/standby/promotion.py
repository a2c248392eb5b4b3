"""``POST /v1/admin/promote``: makes a standby the writer, whatever the active one shows."""

from http import HTTPStatus
from typing import TYPE_CHECKING

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.service.admin import json_response
from shale.service.admin_calls import SCHEMA_VERSION, no_query, with_problem_responses
from shale.service.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = "/v1/admin/promote"


class Promotion:
    """The requests for a promotion, and their outcome.

    A standby passes ``start``; without it, the process is the writer already.
    """

    def __init__(self) -> None:
        self.start: Callable[[], None] | None = None
        self._epoch: int | None = None
        self._outcome = anyio.Event()
        self._problem: str | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch of this process; ``None`` while it is not the writer."""
        return self._epoch

    def route(self) -> Route:
        """Return the route for the admin port."""
        return Route(PATH, with_problem_responses(self._promote), methods=["POST"])

    def succeeded(self, epoch: int) -> None:
        """Record that this process is the writer."""
        self.start = None
        self._epoch = epoch
        self._outcome.set()

    def failed(self, problem: str) -> None:
        """Answer the requests that wait: another process has become the writer first."""
        self._problem = problem
        outcome, self._outcome = self._outcome, anyio.Event()
        outcome.set()

    async def _promote(self, request: Request) -> Response:
        no_query(request)
        if (epoch := self.epoch) is not None:
            return _answer(epoch, promoted=False)
        if self.start is None:
            raise Problem(HTTPStatus.CONFLICT, "this process is starting: ask again when /readyz tells its state")
        self._problem = None
        self.start()
        await self._outcome.wait()
        if (epoch := self.epoch) is None:
            raise Problem(HTTPStatus.CONFLICT, f"the standby was not promoted: {self._problem}")
        return _answer(epoch, promoted=True)


def _answer(epoch: int, *, promoted: bool) -> Response:
    fields = {"state": "active", "epoch": epoch, "promoted": promoted}
    return json_response({"schema_version": SCHEMA_VERSION, **fields})
