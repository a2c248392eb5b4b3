"""The header with the bearer token of a client, and the file that holds one."""

from pathlib import Path

from shale.core.token_hash import is_token_hash
from shale.errors import InvalidRequestError


def authorization(token: str | None) -> dict[str, str]:
    """Return the header of a token; no header without one.

    Raises:
        InvalidRequestError: see ``check_token``.
    """
    return {} if token is None else {"Authorization": f"Bearer {check_token(token)}"}


def check_token(token: str) -> str:
    """Return a token that a client can send.

    Raises:
        InvalidRequestError: no header can hold the token, or it is a hash; nothing of it is in the message.
    """
    if not token or not all("!" <= letter <= "~" for letter in token):
        raise InvalidRequestError("the bearer token must be printable ASCII without spaces, and not empty")
    if is_token_hash(token):
        raise InvalidRequestError("the bearer token begins with sha256: send the token itself, not its hash")
    return token


def token_of_file(file: Path) -> str:
    """Return the token that a file holds.

    Raises:
        InvalidRequestError: the file cannot be read, or holds no token; nothing of its content is in the message.
    """
    try:
        return check_token(file.read_text().strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{file}: cannot read a token: {type(error).__name__}") from None
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{file}: {error}") from None
