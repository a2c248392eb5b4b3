"""The audit log: one event for each call that administrates (docs/how-to/audit.md).

These are the calls of the admin port with another method than ``GET``, lookups of the console, and the commands of the
Redis port that need the role admin.  An event says who called, from where, what, and how it ended; it holds neither the
token nor a body.
"""

from hashlib import sha256

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from shale.core.url_secrets import without_url_secrets
from shale.env import Ids
from shale.service.access import AccessTokens
from shale.service.http.bearer import READING_METHODS, token_of
from shale.service.http.request_id import safe_request_id
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.log_output import AUDIT_COMPONENT
from shale.telemetry.metrics import Metrics

NO_ROLE = "none"
OUTCOMES = ("completed", "failed", "refused")
_REFUSALS = {401: "unauthorized", 403: "forbidden", 429: "quota"}
_FINGERPRINT_DIGITS = 8
_PATH_MAX = 1024

log = get_logger(AUDIT_COMPONENT)


def fingerprint(token: bytes) -> str:
    """Return 32 bits of the hash of a token, in hexadecimal: they tell tokens apart and do not reveal one."""
    return sha256(token).hexdigest()[:_FINGERPRINT_DIGITS]


class AuditLog:
    """Logs and counts the calls of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._counts = {name: metrics.counter("shale_admin_calls_total", outcome=name) for name in OUTCOMES}

    def completed(self, **fields: object) -> None:
        """Record a call that succeeded."""
        self._counts["completed"].inc()
        log.info(Event.ADMIN_CALL_COMPLETED, **fields)

    def failed(self, **fields: object) -> None:
        """Record a call that was allowed and failed, or ended without an answer."""
        self._counts["failed"].inc()
        log.info(Event.ADMIN_CALL_FAILED, **fields)

    def refused(self, reason: str, **fields: object) -> None:
        """Record a call that was not allowed."""
        self._counts["refused"].inc()
        # Lines with an error type are limited to one per second: strangers must not fill the disk.
        limited = {"error_type": reason} if fields["role"] == NO_ROLE else {}
        log.warning(Event.ADMIN_CALL_REFUSED, **fields, reason=reason, **limited)


class AuditMiddleware:
    """ASGI middleware that logs and counts the calls below one prefix.

    Args:
        app: handles the calls, also refuses them.
        prefix: the start of the paths.
        tokens: the tokens of the port.
        metrics: the metrics registry.
        ids: makes request ids for calls without one.
    """

    def __init__(self, app: ASGIApp, prefix: str, tokens: AccessTokens, metrics: Metrics, ids: Ids) -> None:
        self._app = app
        self._prefix = prefix
        self._tokens = tokens
        self._ids = ids
        self._log = AuditLog(metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        is_call = scope["type"] == "http" and scope["path"].startswith(self._prefix)
        if not is_call or scope["method"] in READING_METHODS:
            await self._app(scope, receive, send)
            return
        request_id = safe_request_id(Headers(scope=scope).get("x-request-id")) or str(self._ids.ulid())
        is_recorded = False

        async def record_and_send(message: Message) -> None:
            # First the event, then the answer: a client that has its answer finds the event.
            nonlocal is_recorded
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                is_recorded = True
                self._record(scope, message["status"], Headers(raw=headers).get("location"))
                message = {**message, "headers": [*headers, (b"x-request-id", request_id.encode("ascii"))]}
            await send(message)

        with bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, record_and_send)
            finally:
                if not is_recorded:
                    self._record(scope, None, None)

    def _record(self, scope: Scope, status: int | None, location: str | None) -> None:
        """Log and count one call; ``status`` is ``None`` if it ended without an answer."""
        fields = {**self._fields(scope), "object": location, "status": status}
        refusal = _REFUSALS.get(status or 0)
        if refusal is not None:
            self._log.refused(refusal, **fields)
        elif status is not None and status < 400:
            self._log.completed(**fields)
        else:
            self._log.failed(**fields)

    def _fields(self, scope: Scope) -> dict[str, object]:
        token = token_of(Headers(scope=scope).get("authorization"))
        role = None if token is None else self._tokens.role_of(token)
        query = scope["query_string"].decode("latin-1")
        client = scope.get("client")
        return {
            "role": NO_ROLE if role is None else role.label,
            # An unknown token may be a password for something else, so nothing of it is written.
            "fingerprint": None if token is None or role is None else fingerprint(token),
            "client": None if client is None else f"{client[0]}:{client[1]}",
            "method": scope["method"],
            "path": without_url_secrets(f"{scope['path']}?{query}" if query else scope["path"])[:_PATH_MAX],
        }
