"""Object stores with SlateDB's names, which are adapters of Shale's stores.

A difference that programs can see: every in-memory store is a store of its own, as in SlateDB and unlike ``memory:///``
of ``shale.Db``.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote, unquote, urlsplit

from shale.compat.slatedb.errors import Invalid, Unavailable, invalid, slatedb_errors
from shale.compat.slatedb.types.enums import ObjectStoreType
from shale.store.connect import open_store
from shale.store.location import BUCKET_SCHEMES
from shale.store.memory import MemoryStore
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore as Adapter

_BUILDER_USED = "builder has already been consumed"
_SCHEMES: Final = {ObjectStoreType.S3: "s3", ObjectStoreType.AZURE: "az", ObjectStoreType.GCS: "gs"}
_NAMES: Final = {
    ObjectStoreType.S3: "S3",
    ObjectStoreType.AZURE: "Azure",
    ObjectStoreType.GCS: "GCS",
    ObjectStoreType.LOCAL: "Local",
    ObjectStoreType.IN_MEMORY: "InMemory",
}
_BUCKET_KEYS: Final = {
    ObjectStoreType.S3: ("aws_bucket", "aws_bucket_name", "bucket", "bucket_name"),
    ObjectStoreType.AZURE: ("azure_container_name", "azure_storage_container_name", "container", "container_name"),
    ObjectStoreType.GCS: ("google_bucket", "google_bucket_name", "bucket", "bucket_name"),
}
_ENV_PREFIXES: Final = {
    ObjectStoreType.S3: ("aws_",),
    ObjectStoreType.AZURE: ("azure_",),
    ObjectStoreType.GCS: ("google_",),
    ObjectStoreType.LOCAL: ("local_",),
    ObjectStoreType.IN_MEMORY: (),
}
_PROVIDERS: Final = {
    "local": ObjectStoreType.LOCAL,
    "memory": ObjectStoreType.IN_MEMORY,
    "aws": ObjectStoreType.S3,
    "azure": ObjectStoreType.AZURE,
    "gcp": ObjectStoreType.GCS,
}


class ObjectStore:
    """A store of databases; made by ``resolve``, ``from_env`` or an ``ObjectStoreBuilder``."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise ValueError("This class has no default constructor")

    @classmethod
    def resolve(cls, url: str) -> "ObjectStore":
        """Return the store of a URL; the path of a database belongs into the builder of the database.

        Raises:
            Error: not a URL, of an unknown kind, or with a path.
        """
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        if not scheme:
            raise Invalid(f"Invalid error: invalid object store URL. url=`{url}`")
        if scheme not in ("file", "memory") and scheme not in BUCKET_SCHEMES:
            raise Unavailable(f"Unavailable error: object store error (unable to recognise URL {url!r})")
        path = unquote(parts.path).strip("/")
        if path or (scheme in ("file", "memory") and parts.netloc):
            raise Invalid(f"Invalid error: invalid object store path. provide path to builder instead. path=`{path}`")
        if scheme == "memory":
            return cls._of(MemoryStore())
        with slatedb_errors():
            return cls._of(open_store(url))

    @classmethod
    def from_env(cls, env_file: str | None) -> "ObjectStore":
        """Return the store of ``CLOUD_PROVIDER`` and the variables of that provider.

        Args:
            env_file: lines ``NAME=value`` for variables that are not set.

        Raises:
            Error: a variable is missing or unknown.
        """
        variables = {**(_read_variables(env_file) if env_file is not None else {}), **os.environ}
        provider = variables.get("CLOUD_PROVIDER")
        type_ = _PROVIDERS.get((provider or "").lower())
        if type_ is None:
            raise _bad_variable("CLOUD_PROVIDER", provider)
        if type_ is ObjectStoreType.LOCAL and not variables.get("LOCAL_PATH"):
            raise _bad_variable("LOCAL_PATH", None)
        builder = ObjectStoreBuilder(type_)
        for name, value in _of_provider(type_, variables).items():
            builder.with_config(name, value)
        return builder.build()

    @classmethod
    def _of(cls, adapter: Adapter) -> "ObjectStore":
        store = object.__new__(cls)
        store._adapter = adapter
        return store

    _adapter: Adapter


class ObjectStoreBuilder:
    """Makes one store; cannot be used after ``build`` or after a call that failed."""

    def __init__(self, store_type: ObjectStoreType) -> None:
        self._type = store_type
        self._config: dict[str, str] = {}
        self._url: str | None = None
        self._is_used = False

    @classmethod
    def from_env(cls, store_type: ObjectStoreType) -> Self:
        """Return a builder with the variables that the provider's own tools read."""
        builder = cls(store_type)
        builder._config.update(_of_provider(store_type, os.environ))
        return builder

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a builder for a URL; for ``file`` it is the directory of the databases.

        Raises:
            Error: not a URL of a known kind.
        """
        scheme = urlsplit(url).scheme.lower()
        types = {
            "file": ObjectStoreType.LOCAL,
            "memory": ObjectStoreType.IN_MEMORY,
            "s3": ObjectStoreType.S3,
            "gs": ObjectStoreType.GCS,
            "az": ObjectStoreType.AZURE,
        }
        type_ = types.get(BUCKET_SCHEMES.get(scheme, scheme))
        if type_ is None:
            raise invalid(f"object store creation failed: unable to recognise URL {url!r}")
        builder = cls(type_)
        builder._url = url
        return builder

    def with_config(self, key: str, value: str) -> None:
        """Set one configuration value of the provider, by the names of its own tools.

        Raises:
            Error: the provider has no such value, or the builder was used before.
        """
        self._require_unused()
        known = ("local_path",) if self._type is ObjectStoreType.LOCAL else _config_keys(self._type)
        if known is not None and key.lower() not in known:
            self._is_used = True
            raise invalid(f"invalid {_NAMES[self._type]} object store config key: {key}")
        self._config[key.lower()] = value

    def with_url(self, url: str) -> None:
        """Set the bucket or directory by a URL.

        Raises:
            Error: the builder was used before.
        """
        self._require_unused()
        self._url = url

    def build(self) -> ObjectStore:
        """Return the store.

        Raises:
            Error: the bucket is not named, the directory does not exist, or the builder was used before.
        """
        self._require_unused()
        self._is_used = True
        match self._type:
            case ObjectStoreType.IN_MEMORY:
                return ObjectStore._of(MemoryStore())
            case ObjectStoreType.LOCAL:
                return self._local()
            case _:
                return self._bucket(_SCHEMES[self._type])

    def _local(self) -> ObjectStore:
        directory = self._config.get("local_path")
        if directory is None and self._url is not None:
            directory = unquote(urlsplit(self._url).path)
        if not directory:
            raise invalid("missing required Local object store config key: local_path")
        if not Path(directory).is_dir():
            raise invalid(f"object store creation failed: there is no directory {directory}")
        with slatedb_errors():
            return ObjectStore._of(open_store("file://" + quote(str(Path(directory).resolve()))))

    def _bucket(self, scheme: str) -> ObjectStore:
        config = dict(self._config)
        named = [config.pop(key) for key in _BUCKET_KEYS[self._type] if key in config]
        bucket = urlsplit(self._url).netloc if self._url is not None else next(iter(named), "")
        if not bucket:
            raise invalid(f"object store creation failed: {_NAMES[self._type]}: the bucket or container is missing")
        with slatedb_errors():
            return ObjectStore._of(open_store(f"{scheme}://{bucket}", StoreOptions(config=config)))

    def _require_unused(self) -> None:
        if self._is_used:
            raise invalid(_BUILDER_USED)


def adapter_of(store: ObjectStore) -> Adapter:
    """Return the adapter of a store.

    Raises:
        TypeError: not a store.
    """
    if not isinstance(store, ObjectStore):
        raise TypeError(f"Expected ObjectStore instance, {type(store).__name__} found")
    return store._adapter


def _config_keys(type_: ObjectStoreType) -> tuple[str, ...] | None:
    """Return the configuration keys of a provider; ``None``: only the provider knows them, when the store is made."""
    return None if type_ in _SCHEMES or type_ is ObjectStoreType.IN_MEMORY else ()


def _of_provider(type_: ObjectStoreType, variables: Mapping[str, str]) -> dict[str, str]:
    prefixes = _ENV_PREFIXES[type_]
    return {name.lower(): value for name, value in variables.items() if prefixes and name.lower().startswith(prefixes)}


def _read_variables(path: str) -> dict[str, str]:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return {}  # like SlateDB, which then uses only the variables that are set
    pairs = (line.removeprefix("export ").partition("=") for line in lines if "=" in line and line.strip()[0] != "#")
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}


def _bad_variable(name: str, value: str | None) -> Invalid:
    shown = "null" if value is None else value
    return Invalid(f"Invalid error: invalid environment variable {name} value `{shown}`")
