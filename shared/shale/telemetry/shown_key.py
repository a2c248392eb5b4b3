"""How a row's key is shown where people may read it: in logs, and in errors about code of the user's."""


def format_key(key: bytes, *, full: bool = False) -> str:
    """A row's key as logs show it: its length and its first 8 bytes in hex, unless whole keys are allowed."""
    return f"{len(key)}:{key.hex() if full else key[:8].hex()}"
