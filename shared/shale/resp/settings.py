"""The settings of the Redis port."""

from typing import Literal

from pydantic import Field, model_validator

from shale.resp.options import RespOptions
from shale.service.config.access.tokens import Token
from shale.service.config.section import Section
from shale.service.config.sections import Bytes, Port, PositiveSeconds, Seconds

MIB = 1 << 20
VALUE_BYTES_MAX = 512 * MIB
_DEFAULTS = RespOptions()


class RespSection(Section):
    """The Redis-compatible port; disabled by default."""

    enabled: bool = Field(default=False, description="Enable the Redis-compatible port.")
    host: str = Field(default="127.0.0.1", description="The address to listen on; 0.0.0.0: all addresses.")
    port: Port = Field(default=6379, description="The port to listen on; 0: any free port.")
    bearer_token: Token | None = Field(
        default=None, description="Password of AUTH with the role write; by default http.bearer_token."
    )
    durability: Literal["memory", "durable"] = Field(
        default=_DEFAULTS.durability,
        description="memory: reply to a write when it is readable; durable: when it is in the WAL.",
    )
    max_connections: int = Field(
        default=_DEFAULTS.max_connections, ge=1, description="Limit of connections; further ones are refused."
    )
    max_connections_per_address: int = Field(
        default=_DEFAULTS.max_connections_per_address,
        ge=1,
        description="Limit of connections of one address; further ones are refused.",
    )
    max_value_bytes: Bytes = Field(
        default=_DEFAULTS.max_value_bytes, ge=1, le=VALUE_BYTES_MAX, description="Limit of one key or value."
    )
    max_command_bytes: Bytes = Field(
        default=_DEFAULTS.max_command_bytes, description="Limit of one command, and of one transaction."
    )
    max_inflight_bytes: Bytes = Field(
        default=_DEFAULTS.max_inflight_bytes, description="Limit of buffered commands of all clients together."
    )
    max_batch_rows: int = Field(default=_DEFAULTS.max_batch_rows, ge=1, description="Limit of keys in one command.")
    request_timeout: PositiveSeconds = Field(
        default=_DEFAULTS.request_timeout_s, description="Time limit of a command, and of silence within one."
    )
    idle_timeout: Seconds = Field(
        default=_DEFAULTS.idle_timeout_s, description="Close connections after this time without a command; 0: never."
    )
    send_timeout: PositiveSeconds = Field(
        default=_DEFAULTS.send_timeout_s,
        description="A client that reads nothing of its replies for this long is dropped.",
    )
    allow_flush: bool = Field(
        default=_DEFAULTS.allow_flush, description="Let FLUSHDB and FLUSHALL delete every row of the database."
    )

    @model_validator(mode="after")
    def _one_command_fits(self) -> "RespSection":
        if not self.max_value_bytes + MIB <= self.max_command_bytes <= self.max_inflight_bytes:
            raise ValueError("max_value_bytes + 1MiB <= max_command_bytes <= max_inflight_bytes must hold")
        return self

    def options(self, *, max_key_bytes: int) -> RespOptions:
        """Return the options of the server."""
        return RespOptions(
            durability=self.durability,
            max_connections=self.max_connections,
            max_connections_per_address=self.max_connections_per_address,
            max_value_bytes=self.max_value_bytes,
            max_command_bytes=self.max_command_bytes,
            max_inflight_bytes=self.max_inflight_bytes,
            max_batch_rows=self.max_batch_rows,
            allow_flush=self.allow_flush,
            max_key_bytes=max_key_bytes,
            request_timeout_s=self.request_timeout,
            idle_timeout_s=self.idle_timeout,
            send_timeout_s=self.send_timeout,
        )
