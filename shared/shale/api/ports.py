"""Which calls a data port has: all of them on a database that is open for writing, or those that read."""

from shale.api.app import Api
from shale.api.limits import Limits
from shale.api.read_calls import ReadCalls
from shale.api.settings import HttpSection, WritesHttpSection
from shale.api.write_calls import WriteCalls
from shale.engine.db import Db
from shale.engine.reads import Reads
from shale.env import Env
from shale.telemetry.metrics import Metrics


def write_port(
    db: Db, http: WritesHttpSection, metrics: Metrics, env: Env, *, max_key_bytes: int, sample_rate: float = 1.0
) -> Api:
    """All calls.  ``sample_rate``: the share of calls whose time is observed."""
    limits = Limits(http, env, metrics, sample_rate=sample_rate)
    writes = WriteCalls(db, limits, env, max_key_bytes=max_key_bytes, names_max=http.max_idempotency_keys)
    return Api([*ReadCalls(db, limits).routes(), *writes.routes()], http, metrics, env)


def read_port(db: Reads, http: HttpSection, metrics: Metrics, env: Env, *, sample_rate: float = 1.0) -> Api:
    """The calls that read."""
    limits = Limits(http, env, metrics, sample_rate=sample_rate)
    return Api(ReadCalls(db, limits).routes(), http, metrics, env)
