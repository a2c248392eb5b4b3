"""The settings of the data port."""

from pydantic import Field, model_validator

from shale.service.config.access.tokens import Token
from shale.service.config.section import Section
from shale.service.config.sections import Bytes, Port, PositiveSeconds

MIB = 1 << 20


class HttpSection(Section):
    """The data port (HTTP API)."""

    host: str = Field(default="127.0.0.1", description="The address to listen on; 0.0.0.0: all addresses.")
    port: Port = Field(default=8080, description="The port to listen on; 0: any free port.")
    bearer_token: Token | None = Field(
        default=None, description="Token of this port with the role write; best as a secret file."
    )
    request_timeout: PositiveSeconds = Field(
        default=60.0, description="Time limit of a request; a longer wait gets 503, a longer pause within a body 408."
    )
    body_timeout: PositiveSeconds = Field(
        default=600.0, description="How long a whole request body may take to arrive; longer ones get 408."
    )
    min_body_rate: Bytes = Field(
        default=1024,
        ge=0,
        description="Bytes per second, on average after 10 s; slower request bodies get 408. 0: no limit.",
    )
    send_timeout: PositiveSeconds = Field(
        default=30.0, description="A client that reads nothing of its response for this long is dropped."
    )
    max_body_bytes: Bytes = Field(default=32 * MIB, description="The largest request body; larger ones get 413.")
    max_inflight_bytes: Bytes = Field(
        default=128 * MIB,
        description="Limit for all request bodies in memory together, and for what they are decoded to.",
    )
    max_batch_rows: int = Field(default=100_000, ge=1, description="Limit of rows or keys in one request.")
    max_snapshots: int = Field(default=64, ge=1, description="Limit of open snapshots; further ones get 429.")
    max_snapshot_lifetime: PositiveSeconds = Field(
        default=600.0, description="The longest lease of a snapshot, and the default; clients can renew it."
    )
    max_connections: int = Field(default=4096, ge=1, description="Limit of connections; further ones get 503.")
    max_connections_per_address: int = Field(
        default=2048, ge=1, description="Limit of connections of one address; further ones get 429."
    )
    max_concurrent_requests: int = Field(
        default=1024, ge=1, description="Limit of concurrent requests; further ones get 429."
    )

    @model_validator(mode="after")
    def _one_body_fits(self) -> "HttpSection":
        if self.max_inflight_bytes < self.max_body_bytes:
            raise ValueError("max_inflight_bytes must be at least max_body_bytes")
        return self


class WritesHttpSection(HttpSection):
    """The data port of a daemon that takes writes."""

    max_idempotency_keys: int = Field(
        default=16_384, ge=1, description="How many idempotency keys to remember; a retried write is committed once."
    )
