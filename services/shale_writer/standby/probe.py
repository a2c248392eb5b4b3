"""Asks the active writer over HTTP whether it lives; the address is in its sign of life."""

import ssl
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from shale.client.authorization import authorization
from shale.service.config.access.exposed_ports import is_loopback
from shale.types.writer_sign import WriterStatus

PATH = "/v1/writer"
PROBE_TIMEOUT_S = 2.0


class HttpProbe:
    """Requests the route of a writer's identity (docs/reference/http.md 1).

    An answer counts if it is of the epoch and the holder that the manifest names, and if that writer has proved its
    epoch lately: one that has lost the store would otherwise keep its role without being able to write.

    Args:
        token: returns a token of the data port, which all writers of a database share.
        has_tls: whether they share TLS, too.  The token then is not sent in clear to another host, because the address
            comes from the manifest, which more processes may write than the data port trusts.
        proof_max_age_s: an older proof does not count.
        verify: how the certificate of the writer is checked.
        transport: of the requests; ``None``: sockets.
    """

    def __init__(
        self,
        token: Callable[[], str | None],
        *,
        proof_max_age_s: float,
        has_tls: bool = False,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._token = token
        self._has_tls = has_tls
        self._proof_max_age_s = proof_max_age_s
        # The address is that of a writer of this deployment, so a proxy of the environment is not asked.
        self._http = httpx.AsyncClient(timeout=PROBE_TIMEOUT_S, trust_env=False, verify=verify, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def __call__(self, active: WriterStatus) -> bool:
        """Return whether the writer has answered; see the class."""
        identity = active.identity
        if identity is None or identity.endpoint is None:
            return False
        try:
            url = httpx.URL(f"{identity.endpoint}{PATH}")
            found = await self._http.get(url, headers=self._headers(url))
            fields = found.json() if found.status_code == httpx.codes.OK else None
        except Exception:  # noqa: BLE001 - whatever fails is no proof, and must not end a standby when it is needed
            # A writer that is killed while the connection is made is an AttributeError of anyio on uvloop.
            return False
        return isinstance(fields, dict) and self._is_proof(fields, active.epoch, identity.holder)

    def _is_proof(self, fields: Mapping[str, Any], epoch: int, holder: str) -> bool:
        age_s = fields.get("proved_s", 0.0)
        is_same = (fields.get("epoch"), fields.get("holder")) == (epoch, holder)
        return is_same and isinstance(age_s, int | float) and age_s < self._proof_max_age_s

    def _headers(self, url: httpx.URL) -> dict[str, str]:
        if self._has_tls and url.scheme != "https" and not is_loopback(url.host):
            return {}
        return authorization(self._token())
