"""``SecretUrl``: the type of every setting that takes a URL, because a URL may hold a password or a signature."""

from typing import Any

from pydantic import GetJsonSchemaHandler, Secret
from pydantic_core import CoreSchema

from shale.core.url_secrets import without_url_secrets, without_userinfo


class SecretUrl(Secret[str]):
    """A URL of which printed settings, logs and ``repr`` show no user, password, token or signature.

    ``get_secret_value()`` returns the whole URL.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe plain text: unlike a password it may be in a settings file, and is printed in part."""
        return {"type": "string"}

    def _display(self) -> str:
        return without_url_secrets(without_userinfo(self.get_secret_value()))


def url_text(url: SecretUrl | None) -> str | None:
    """Return the whole URL of a setting; ``None`` if it is not set."""
    return None if url is None else url.get_secret_value()
