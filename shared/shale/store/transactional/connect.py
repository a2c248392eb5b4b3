"""Opens transactional stores by URL."""

from urllib.parse import unquote, urlsplit

from shale.errors import InvalidRequestError
from shale.store.location import without_credentials
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.store.transactional.port import TransactionalStore

_memory_stores: dict[str, MemoryTransactionalStore] = {}
"""``memory:///`` names one store per process, as for objects."""

_EXTRAS = {"postgresql": "postgres", "mysql": "mysql", "dynamodb": "dynamodb"}
_ALIASES = {"postgres": "postgresql", "mariadb": "mysql"}


def open_transactional_store(url: str) -> TransactionalStore:
    """Return the driver for a URL.  Sends no request.

    Raises:
        InvalidRequestError: the URL cannot be understood, or the driver's package is not installed.
    """
    scheme, separator, rest = url.partition("://")
    scheme = _ALIASES.get(scheme.lower(), scheme.lower())
    url = f"{scheme}{separator}{rest}"
    if scheme == "memory":
        return _memory_stores.setdefault(url, MemoryTransactionalStore(url))
    if scheme == "sqlite":
        from shale.store.transactional.sqlite import SqliteTransactionalStore

        address = urlsplit(url)
        if address.netloc or address.query or address.fragment:
            raise InvalidRequestError(f"{without_credentials(url)}: write sqlite:///absolute/path")
        return SqliteTransactionalStore(unquote(address.path))
    if scheme not in _EXTRAS:
        known = "sqlite:///absolute/path, postgresql://, mysql://, dynamodb://region/table or memory:///"
        raise InvalidRequestError(f"{without_credentials(url)}: unknown transactional store; use {known}")
    try:
        return _open_with_package(scheme, url)
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"{without_credentials(url)}: needs the package {error.name}: pip install 'shale[{_EXTRAS[scheme]}]'"
        ) from error


def _open_with_package(scheme: str, url: str) -> TransactionalStore:
    """Import a driver whose package is an extra."""
    if scheme == "postgresql":
        from shale.store.transactional.postgresql import PostgresqlTransactionalStore

        return PostgresqlTransactionalStore(url)
    if scheme == "mysql":
        from shale.store.transactional.mysql import MysqlTransactionalStore

        return MysqlTransactionalStore(url)
    from shale.store.transactional.dynamodb import DynamodbTransactionalStore

    return DynamodbTransactionalStore(url)
