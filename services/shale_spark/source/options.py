"""The options of ``spark.read.format("shale")``, and the database that they name."""

import ast
import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast, get_args
from uuid import UUID

from shale.core.lazy_dataclass import dataclass
from shale.core.settings_values import parse_duration_s, parse_size
from shale.crypto.aes_gcm import key_file_of, transformer_of
from shale.engine.location import DatabaseLocation, resolve
from shale.errors import InvalidRequestError
from shale.protocol.checkpoints import require_checkpoint_reference
from shale.store.options import StoreOptions
from shale.types import EVERYTHING, MANIFEST_VERSION, KeyRange, ManifestVersion
from shale_spark.codecs import OnDecodeError, ValueCodec, value_codec
from shale_spark.source.store_options import task_store_options

PARTITION_BYTES = 128 * 1024**2
TAIL_BYTES = 16 * 1024**2
"""A larger limit would burden Spark's driver, which keeps the plans of all tasks."""
LIFETIME_S = 1800.0
_LIFETIME_MIN_S = 30.0
_KEY_FILE = "store.encryption_key_file"

KEY_FORMATS = ("utf8", "hex", "base64", "repr")
"""The formats of keys in options."""
PLACE = frozenset({"url", "store", "path", "wal_store", "manifest_write_version"})
"""The options that name a database; ``store.*`` configures the access to it."""
KNOWN = PLACE | {
    "checkpoint",
    "checkpoint_lifetime",
    "start",
    "stop",
    "prefix",
    "keys",
    "key_format",
    "partition_bytes",
    "tail_bytes",
    "value_format",
    "avro_schema",
    "mode",
    "merge_operator",
    "pushdown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkReadOptions:
    """One batch read.

    Args:
        where: the database.
        checkpoint: the id or name of the checkpoint to read; by default the newest state, under a checkpoint that is
            made for the query.
        lifetime_s: how long such a checkpoint lives after the last task that relied on it.
        key_range: the keys; ``prefix`` is part of it, and lets filters exclude SSTs.
        prefix: the prefix of all keys, if there is one.
        keys: only these keys.
        partition_bytes: bytes of stored data that one task reads.
        tail_bytes: rows that are in no SST yet travel with the plans up to this size; more are replayed by each task.
        value_format, avro_schema: see ``value_codec``.
        on_decode_error: what to do with values that cannot be decoded.
        merge_operator: a registered name or ``module:attribute``; for databases that hold merge operands.
        pushdown: whether filters on ``key`` limit what is read (docs/how-to/spark-read.md says when that is safe).
    """

    where: DatabaseLocation
    checkpoint: UUID | str | None = None
    lifetime_s: float = LIFETIME_S
    key_range: KeyRange = EVERYTHING
    prefix: bytes | None = None
    keys: tuple[bytes, ...] | None = None
    partition_bytes: int = PARTITION_BYTES
    tail_bytes: int = TAIL_BYTES
    value_format: str = "binary"
    avro_schema: str | None = None
    on_decode_error: OnDecodeError = OnDecodeError.FAILFAST
    merge_operator: str | None = None
    pushdown: bool = False

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            require_checkpoint_reference(self.checkpoint)
        if self.partition_bytes < 1:
            raise InvalidRequestError("partition_bytes must be greater than 0")
        if self.lifetime_s < _LIFETIME_MIN_S:
            raise InvalidRequestError(f"checkpoint_lifetime must be at least {_LIFETIME_MIN_S:g}s")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SparkReadOptions":
        """Parse the options of a DataFrame reader.

        Raises:
            InvalidRequestError: an unknown option, or an invalid value; names it.
        """
        given = lowercase_names(options)
        refuse_unknown(given, KNOWN)
        key_format = given.get("key_format", "utf8")
        if key_format not in KEY_FORMATS:
            raise InvalidRequestError(f"key_format: {key_format!r} is none of {', '.join(KEY_FORMATS)}")
        start, stop, prefix = (_key(given.get(name), key_format, name) for name in ("start", "stop", "prefix"))
        key_range = KeyRange.half_open(start, stop)
        return cls(
            where=parse_where(given),
            checkpoint=given.get("checkpoint"),
            lifetime_s=parse_duration_s(given.get("checkpoint_lifetime", LIFETIME_S), name="checkpoint_lifetime"),
            key_range=key_range if prefix is None else key_range.intersect(KeyRange.with_prefix(prefix)),
            prefix=prefix or None,
            keys=_keys(given.get("keys"), key_format),
            partition_bytes=parse_bytes(given.get("partition_bytes", str(PARTITION_BYTES)), "partition_bytes"),
            tail_bytes=parse_bytes(given.get("tail_bytes", str(TAIL_BYTES)), "tail_bytes"),
            value_format=given.get("value_format", "binary"),
            avro_schema=given.get("avro_schema"),
            on_decode_error=_on_bad(given.get("mode", OnDecodeError.FAILFAST.value)),
            merge_operator=given.get("merge_operator"),
            pushdown=parse_bool(given.get("pushdown", "false"), "pushdown"),
        )

    def codec(self) -> ValueCodec:
        """Return the codec of the values.

        Raises:
            InvalidRequestError: there is no such format.
        """
        return value_codec(self.value_format, avro_schema=self.avro_schema)


def parse_where(options: Mapping[str, str]) -> DatabaseLocation:
    """Return the database that options name: ``url``, or ``store`` and ``path``; ``.load(url)`` names it too.

    ``store.endpoint``, ``store.region`` and the like configure the access, ``store.max_retries`` the retries.
    ``manifest_write_version`` is 1 in the first phase of an upgrade (docs/how-to/migrate-from-slatedb.md).
    ``store.encryption_key_file`` names the file with the keys of an encrypted database, on every executor.
    Secrets belong into the environment of the executors, because options are part of Spark's plans.

    Raises:
        InvalidRequestError: options are missing, contradict each other, or are invalid.
    """
    given = lowercase_names(options)
    url, store, path = given.get("url"), given.get("store"), given.get("path")
    if store is None and path is not None and "://" in path:
        if url is not None and url != path:
            raise InvalidRequestError(f"two databases were named: {url} and {path}")
        url, path = path, None
    if url is None and store is None:
        raise InvalidRequestError("no database was named: give the option url, or store and path")
    where = resolve(
        url,
        store=store,
        path=path,
        wal_store=given.get("wal_store"),
        store_options=_store_options(given),
        block_transformer=transformer_of(given.get(_KEY_FILE)),
    )
    return replace(where, manifest_write_version=_manifest_version(given.get("manifest_write_version", "2")))


def _manifest_version(text: str) -> ManifestVersion:
    for version in get_args(ManifestVersion):
        if text == str(version):
            return cast("ManifestVersion", version)
    raise InvalidRequestError(f"manifest_write_version: {text!r} is unknown: choose 1 or 2")


def where_options(where: DatabaseLocation) -> dict[str, str]:
    """Return the options that name a database, so that another process finds it.

    Raises:
        InvalidRequestError: a store was given as an object, which other processes cannot reach.
    """
    if not isinstance(where.store, str) or not isinstance(where.wal_store, str | None):
        raise InvalidRequestError("executors reach a database by URL: a store was given as an object")
    options = {"store": where.store, "path": where.root}
    if where.wal_store is not None:
        options["wal_store"] = where.wal_store
    if where.manifest_write_version != MANIFEST_VERSION:
        options["manifest_write_version"] = str(where.manifest_write_version)
    options |= {f"store.{name}": value for name, value in where.store_options.config.items()}
    retries_max = where.store_options.retry.retries_max
    if retries_max is not None:
        options["store.max_retries"] = str(retries_max)
    key_file = key_file_of(where.block_transformer)
    if key_file is not None:
        options[_KEY_FILE] = key_file
    return options


def lowercase_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with names in lower case, as Spark compares them."""
    return {name.lower(): value for name, value in options.items()}


def refuse_unknown(options: Mapping[str, str], known: Iterable[str]) -> None:
    """Return if every option is known or begins with ``store.``.

    Raises:
        InvalidRequestError: one is not.
    """
    known = frozenset(known)
    unknown = sorted(name for name in options if name not in known and not name.startswith("store."))
    if unknown:
        raise InvalidRequestError(
            f"{unknown[0]}: no such option of the data source shale; there are {', '.join(sorted(known))}, store.*"
        )


def parse_bytes(text: str, name: str) -> int:
    """Parse a size such as ``128MiB``; a plain number is bytes."""
    return parse_size(text, name=name)


def parse_bool(text: str, name: str) -> bool:
    """Parse ``true`` or ``false``."""
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise InvalidRequestError(f"{name}: {text!r} is neither true nor false")
    return found


def parse_key(text: str, key_format: str, name: str) -> bytes:
    """Parse a key as the command line takes it, in one of ``KEY_FORMATS``.

    Raises:
        InvalidRequestError: not in this format; names the option.
    """
    try:
        match key_format:
            case "utf8":
                return text.encode()
            case "hex":
                return bytes.fromhex(text)
            case "base64":
                return base64.b64decode(text, validate=True)
            case "repr":
                found = ast.literal_eval(text)
                if isinstance(found, bytes):
                    return found
    except (ValueError, SyntaxError, binascii.Error) as error:
        raise InvalidRequestError(f"{name}: {text!r} is not {key_format}") from error
    raise InvalidRequestError(f"{name}: {text!r} is not a bytes literal such as b'key'")


def _key(text: str | None, key_format: str, name: str) -> bytes | None:
    return None if text is None else parse_key(text, key_format, name)


def _keys(text: str | None, key_format: str) -> tuple[bytes, ...] | None:
    """Parse keys separated by commas."""
    if text is None:
        return None
    return tuple(sorted({parse_key(part, key_format, "keys") for part in text.split(",") if part}))


def _on_bad(text: str) -> OnDecodeError:
    try:
        return OnDecodeError(text.lower())
    except ValueError:
        raise InvalidRequestError(f"mode: {text!r} is neither permissive nor failfast") from None


def _store_options(given: Mapping[str, str]) -> StoreOptions:
    config = {name.removeprefix("store."): value for name, value in given.items() if name.startswith("store.")}
    config.pop(_KEY_FILE.removeprefix("store."), None)  # it configures the data, not the store
    return task_store_options(config)
