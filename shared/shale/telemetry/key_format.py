"""How logs and errors about user code show the key of a row."""


def format_key(key: bytes, *, full: bool = False) -> str:
    """Return the key as logs show it: its length and its first 8 bytes in hex, unless whole keys are allowed."""
    return f"{len(key)}:{key.hex() if full else key[:8].hex()}"
