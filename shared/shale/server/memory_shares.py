"""How much of a small memory the requests, responses and connections of a writer or reader get."""

from shale.core.memory_plan import MIB, BoundedSize, MemoryShare
from shale.service.memory.connection_memory import connection_bytes

RESPONSES = MemoryShare(name="memory.response_bytes", default=256 * MIB, least=4 * MIB, weight=2)


def http_shares(*, tls: bool) -> tuple[MemoryShare, ...]:
    """Return the shares of the HTTP port."""
    return (
        MemoryShare(
            name="http.max_inflight_bytes",
            default=128 * MIB,
            least=MIB,
            weight=2,
            bounds=(BoundedSize("http.max_body_bytes", 32 * MIB, 1.0, 1.0),),
        ),
        _connections("http", 4096, least=128, weight=1.5, tls=tls),
    )


def resp_shares(*, tls: bool) -> tuple[MemoryShare, ...]:
    """Return the shares of the Redis port."""
    return (
        MemoryShare(
            name="resp.max_inflight_bytes",
            default=128 * MIB,
            least=4 * MIB,
            weight=2,
            bounds=(
                BoundedSize("resp.max_command_bytes", 64 * MIB, 1.0, 1.0),
                BoundedSize("resp.max_value_bytes", 32 * MIB, 0.5, 2.0),
            ),
        ),
        _connections("resp", 1024, least=64, weight=0.5, tls=tls),
    )


def _connections(section: str, default: int, *, least: int, weight: float, tls: bool) -> MemoryShare:
    """Return the share of the connections of a port; one address may have half of them."""
    per_address = BoundedSize(f"{section}.max_connections_per_address", default // 2, 0.5, 0.0)
    return MemoryShare(
        name=f"{section}.max_connections",
        default=default,
        least=least,
        weight=weight,
        factor=connection_bytes(tls=tls),
        counts=True,
        bounds=(per_address,),
    )
