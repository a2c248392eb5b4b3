"""The header with the bearer token of a client, and the file that holds one."""

from pathlib import Path

from shale.errors import InvalidRequestError


def authorization(token: str | None) -> dict[str, str]:
    """Return the header of a token; no header without one.

    Raises:
        InvalidRequestError: no header can hold the token; nothing of it is in the message.
    """
    if token is None:
        return {}
    if not token or not all("!" <= letter <= "~" for letter in token):
        raise InvalidRequestError("the bearer token must be printable ASCII without spaces, and not empty")
    return {"Authorization": f"Bearer {token}"}


def token_of_file(file: Path) -> str:
    """Return the token that a file holds.

    Raises:
        InvalidRequestError: the file cannot be read, or holds no token; nothing of its content is in the message.
    """
    try:
        token = file.read_text().strip()
        authorization(token)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{file}: cannot read a token: {type(error).__name__}") from None
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{file}: {error}") from None
    return token
