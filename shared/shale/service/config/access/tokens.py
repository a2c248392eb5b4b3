"""The settings of bearer tokens (docs/how-to/tokens.md)."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from shale.core.token_hash import is_token_hash, is_valid_token_hash
from shale.service.access import Role, TokenRole
from shale.service.config.section import Section


def _check_token(token: SecretStr) -> SecretStr:
    text = token.get_secret_value()
    if not text:
        raise ValueError("is empty, which would allow every request; leave it out for a port without a token")
    if not all("!" <= letter <= "~" for letter in text):
        raise ValueError("must be printable ASCII without spaces: HTTP headers change other characters")
    if is_token_hash(text) and not is_valid_token_hash(text):
        raise ValueError("a hash is sha256: and 64 hexadecimal digits, as `shale config hash-token` prints it")
    return token


def _check_plain(token: SecretStr) -> SecretStr:
    if is_token_hash(token.get_secret_value()):
        raise ValueError("is sent to another process, which takes the token itself and not its hash")
    return token


def _split(value: Any) -> Any:
    """Split the text of a variable or of a secret file; an empty one is an empty token, which is an error."""
    if not isinstance(value, str):
        return value
    return value.replace(",", " ").split() or [""]


Token = Annotated[SecretStr, AfterValidator(_check_token)]
"""The bearer token of a port, or its hash.  An empty token, for example from an empty secret file, is an error."""

PlainToken = Annotated[Token, AfterValidator(_check_plain)]
"""A bearer token that this process sends."""

Tokens = Annotated[tuple[Token, ...], BeforeValidator(_split, json_schema_input_type=str | list[str])]
"""Bearer tokens and hashes of them; in a variable or a file they are separated by commas, spaces or line ends."""


class TokensSection(Section):
    """Tokens with a role, or their hashes, which all ports accept: HTTP, RESP and admin; best as secret files."""

    read: Tokens = Field(default=(), description="Tokens that may read rows, and the state of the process.")
    write: Tokens = Field(default=(), description="Tokens that may also write rows.")
    admin: Tokens = Field(default=(), description="Tokens that may do everything, also administration.")

    def roles(self) -> Iterator[TokenRole]:
        """Return all tokens with their roles."""
        for tokens, role in ((self.read, Role.READ), (self.write, Role.WRITE), (self.admin, Role.ADMIN)):
            yield from ((token, role) for token in tokens)
