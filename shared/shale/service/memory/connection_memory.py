"""What an idle connection takes: uvicorn's protocol, or ours, and the transport.

Measured with 1,000 of them, see docs/how-to/operate/sizing.md: 13 KiB, and 57 KiB with TLS.
"""

_PLAIN_BYTES = 16 << 10
_TLS_BYTES = 64 << 10
"""The state of OpenSSL, and two buffers of asyncio or uvloop."""


def connection_bytes(*, tls: bool) -> int:
    """Return the memory of one connection, besides its requests and responses."""
    return _TLS_BYTES if tls else _PLAIN_BYTES
