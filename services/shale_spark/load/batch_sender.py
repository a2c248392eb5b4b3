"""Sending of rows to a running writer, batch after batch, each until it is durable.

A batch whose response was lost is sent again under its name, and the writer commits it once.  The name consists of the
batch's number and content: a task that runs again uses the same names, while a later batch that equals an earlier one
has another name, because other batches may lie between them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import field
from http import HTTPStatus

import anyio
import httpx
import msgpack

from shale.client.tls import client_tls
from shale.core.lazy_dataclass import dataclass
from shale.engine.load.manifest import shown
from shale.env import Env
from shale.errors import AccessDenied, InvalidRequestError, UnavailableError

Op = tuple[str, bytes, bytes] | tuple[str, bytes, bytes, int]
"""``("put", key, value)``, with an optional lifetime in milliseconds."""

_AGAIN = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.MISDIRECTED_REQUEST,  # fenced: the next writer may serve the same address soon
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_DELAY_FIRST_S = 0.1
_DELAY_MAX_S = 10.0
_DETAIL_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A writer's data port.  ``timeout_s``: how long one batch is tried; the files are those of ``client_tls``."""

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 300.0
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def client(self) -> httpx.AsyncClient:
        """Return an HTTP client for it."""
        headers = {"Content-Type": "application/msgpack"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        verify = client_tls(self.ca_file, self.cert_file, self.key_file)
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=max(60.0, self.timeout_s), verify=verify)


class BatchSender:
    """Sends batches in order; one is durable before the next is sent."""

    def __init__(self, endpoint: Endpoint, client: httpx.AsyncClient, env: Env, *, name: str) -> None:
        """Send nothing yet.

        Args:
            endpoint: the writer.
            client: see ``Endpoint.client``.
            env: clock and randomness.
            name: of the whole write; the prefix of every batch's name.
        """
        self._endpoint = endpoint
        self._client = client
        self._env = env
        self._name = name
        self._sent = 0

    async def send(self, ops: Sequence[Op]) -> None:
        """Return once the batch is durable.

        Raises:
            InvalidRequestError: the writer refuses it (``AccessDenied``: without a token, or with a wrong one).
            UnavailableError: the writer did not take it in time; it may have been committed.
        """
        body = bytes(msgpack.packb({"ops": ops}) or b"")
        name = f"{self._name}.{self._sent}.{hashlib.blake2b(body, digest_size=16).hexdigest()}"
        deadline_s = self._env.clock.monotonic_s() + self._endpoint.timeout_s
        attempts = 0
        while True:
            problem, wait_s = await self._try(body, name, first_key=ops[0][1])
            if problem is None:
                self._sent += 1
                return
            attempts += 1
            wait_s = max(wait_s, self._backoff_s(attempts))
            if self._env.clock.monotonic_s() + wait_s > deadline_s:
                tries = f"{attempts} tries in {self._endpoint.timeout_s:g} s"
                raise UnavailableError(f"the writer at {self._endpoint.url} took no batch in {tries}: {problem}")
            await anyio.sleep(wait_s)

    async def _try(self, body: bytes, name: str, *, first_key: bytes) -> tuple[str | None, float]:
        """Return the problem and the delay that the writer asks for; ``None`` without a problem."""
        try:
            answer = await self._client.post("/v1/batch", content=body, headers={"Idempotency-Key": name})
        except httpx.TransportError as error:
            return repr(error), 0.0
        if answer.status_code == HTTPStatus.OK:
            return None, 0.0
        problem = f"{answer.status_code} {_detail(answer)}"
        if answer.status_code in _AGAIN:
            return problem, _retry_after_s(answer)
        place = f"the writer at {self._endpoint.url}"
        if answer.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise AccessDenied(f"{place}: {problem}")
        if answer.is_server_error:
            raise UnavailableError(f"{place}: {problem}")
        raise InvalidRequestError(f"{place} refused the batch that begins with key {shown(first_key)}: {problem}")

    def _backoff_s(self, attempts: int) -> float:
        longest = min(_DELAY_MAX_S, _DELAY_FIRST_S * 2 ** min(attempts, 10))
        return self._env.rng.uniform(longest / 2, longest)


def _detail(answer: httpx.Response) -> str:
    if answer.headers.get("content-type", "").startswith("application/problem+json"):
        document = answer.json()
        if isinstance(document, dict):
            return str(document.get("detail"))[:_DETAIL_MAX]
    return answer.text[:_DETAIL_MAX]


def _retry_after_s(answer: httpx.Response) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdigit() and len(text) < 6 else 0.0
