"""What can be said to ``spark.read.format("shale")``, and the database that it names."""

import ast
import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from shale.engine.aes_gcm import key_file_of, transformer_of
from shale.engine.settings_values import parse_duration_s, parse_size, parse_whole
from shale.engine.where import Where, resolve
from shale.errors import InvalidRequestError
from shale.protocol.checkpoint_names import checkpoint_reference
from shale.store.options import RetryPolicy, StoreOptions
from shale.types import EVERYTHING, KeyRange
from shale_spark.codecs import OnBad, ValueCodec, value_codec

PARTITION_BYTES = 128 * 1024**2
TAIL_BYTES = 16 * 1024**2
"""More would be a burden for Spark's driver, which keeps the plans of all tasks."""
LIFETIME_S = 1800.0
_LIFETIME_MIN_S = 30.0
_STORE_RETRIES_MAX = 10
_KEY_FILE = "store.encryption_key_file"
"""A task that cannot reach its store fails after some seconds, and Spark tries it elsewhere."""

KEY_FORMATS = ("utf8", "hex", "base64", "repr")
"""How keys are written in options."""
PLACE = frozenset({"url", "store", "path", "wal_store"})
"""The options that name a database; ``store.*`` says how to reach it."""
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
class ReadOptions:
    """One batch read.

    Args:
        where: the database.
        checkpoint: what to read, an id or a name; by default the newest state, under a checkpoint that is made for
            the query.
        lifetime_s: how long such a checkpoint lives after the last task that relied on it.
        key_range: which keys; ``prefix`` is part of it, and lets filters exclude SSTs.
        keys: only these keys.
        partition_bytes: how much stored data one task reads.
        tail_bytes: rows that are in no SST yet travel with the plans up to this size; more are replayed by each task.
        value_format, avro_schema: see ``value_codec``.
        on_bad: what becomes of values that cannot be decoded.
        merge_operator: a registered name or ``module:attribute``; for databases that hold merge operands.
        pushdown: whether filters on ``key`` choose what is read (docs/spark_read.md says when that is safe).
    """

    where: Where
    checkpoint: UUID | str | None = None
    lifetime_s: float = LIFETIME_S
    key_range: KeyRange = EVERYTHING
    prefix: bytes | None = None
    keys: tuple[bytes, ...] | None = None
    partition_bytes: int = PARTITION_BYTES
    tail_bytes: int = TAIL_BYTES
    value_format: str = "binary"
    avro_schema: str | None = None
    on_bad: OnBad = OnBad.FAILFAST
    merge_operator: str | None = None
    pushdown: bool = False

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            checkpoint_reference(self.checkpoint)
        if self.partition_bytes < 1:
            raise InvalidRequestError("partition_bytes must be greater than 0")
        if self.lifetime_s < _LIFETIME_MIN_S:
            raise InvalidRequestError(f"checkpoint_lifetime must be at least {_LIFETIME_MIN_S:g}s")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "ReadOptions":
        """Understand the options of a DataFrame reader.

        Raises:
            InvalidRequestError: an unknown option, or a value that makes no sense; names it.
        """
        given = lowered(options)
        refuse_unknown(given, KNOWN)
        key_format = given.get("key_format", "utf8")
        if key_format not in KEY_FORMATS:
            raise InvalidRequestError(f"key_format: {key_format!r} is none of {', '.join(KEY_FORMATS)}")
        start, stop, prefix = (_key(given.get(name), key_format, name) for name in ("start", "stop", "prefix"))
        key_range = KeyRange.half_open(start, stop)
        return cls(
            where=where_of(given),
            checkpoint=given.get("checkpoint"),
            lifetime_s=parse_duration_s(given.get("checkpoint_lifetime", LIFETIME_S), name="checkpoint_lifetime"),
            key_range=key_range if prefix is None else key_range.intersect(KeyRange.with_prefix(prefix)),
            prefix=prefix or None,
            keys=_keys(given.get("keys"), key_format),
            partition_bytes=parse_bytes(given.get("partition_bytes", str(PARTITION_BYTES)), "partition_bytes"),
            tail_bytes=parse_bytes(given.get("tail_bytes", str(TAIL_BYTES)), "tail_bytes"),
            value_format=given.get("value_format", "binary"),
            avro_schema=given.get("avro_schema"),
            on_bad=_on_bad(given.get("mode", OnBad.FAILFAST.value)),
            merge_operator=given.get("merge_operator"),
            pushdown=parse_bool(given.get("pushdown", "false"), "pushdown"),
        )

    def codec(self) -> ValueCodec:
        """What decodes the values.

        Raises:
            InvalidRequestError: there is no such format.
        """
        return value_codec(self.value_format, avro_schema=self.avro_schema)


def where_of(options: Mapping[str, str]) -> Where:
    """The database that options name: ``url``, or ``store`` and ``path``; ``.load(url)`` names it too.

    ``store.endpoint``, ``store.region`` and the like say how to reach it, ``store.max_retries`` how patiently.
    ``store.encryption_key_file`` names the file with the keys of an encrypted database, on every executor.
    Secrets are better left to the environment of the executors: options are part of Spark's plans.

    Raises:
        InvalidRequestError: too much, too little, or not understood.
    """
    given = lowered(options)
    url, store, path = given.get("url"), given.get("store"), given.get("path")
    if store is None and path is not None and "://" in path:
        if url is not None and url != path:
            raise InvalidRequestError(f"two databases were named: {url} and {path}")
        url, path = path, None
    if url is None and store is None:
        raise InvalidRequestError("no database was named: give the option url, or store and path")
    return resolve(
        url,
        store=store,
        path=path,
        wal_store=given.get("wal_store"),
        store_options=_store_options(given),
        block_transformer=transformer_of(given.get(_KEY_FILE)),
    )


def options_of(where: Where) -> dict[str, str]:
    """The options that name a database, so that another process finds it.

    Raises:
        InvalidRequestError: a store was given as an object, which cannot be reached from elsewhere.
    """
    if not isinstance(where.store, str) or not isinstance(where.wal_store, str | None):
        raise InvalidRequestError("executors reach a database by URL: a store was given as an object")
    options = {"store": where.store, "path": where.root}
    if where.wal_store is not None:
        options["wal_store"] = where.wal_store
    options |= {f"store.{name}": value for name, value in where.store_options.config.items()}
    retries_max = where.store_options.retry.retries_max
    if retries_max is not None:
        options["store.max_retries"] = str(retries_max)
    key_file = key_file_of(where.block_transformer)
    if key_file is not None:
        options[_KEY_FILE] = key_file
    return options


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """Options with names in lower case, as Spark compares them."""
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
    """A size such as ``128MiB``; a plain number is bytes."""
    return parse_size(text, name=name)


def parse_bool(text: str, name: str) -> bool:
    """``true`` or ``false``."""
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise InvalidRequestError(f"{name}: {text!r} is neither true nor false")
    return found


def parse_key(text: str, key_format: str, name: str) -> bytes:
    """A key as the command line takes it, in one of ``KEY_FORMATS``.

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
    """Keys between commas."""
    if text is None:
        return None
    return tuple(sorted({parse_key(part, key_format, "keys") for part in text.split(",") if part}))


def _on_bad(text: str) -> OnBad:
    try:
        return OnBad(text.lower())
    except ValueError:
        raise InvalidRequestError(f"mode: {text!r} is neither permissive nor failfast") from None


def _store_options(given: Mapping[str, str]) -> StoreOptions:
    config = {name.removeprefix("store."): value for name, value in given.items() if name.startswith("store.")}
    config.pop(_KEY_FILE.removeprefix("store."), None)  # it is about what lies in the store
    retries = parse_whole(config.pop("max_retries", str(_STORE_RETRIES_MAX)), name="store.max_retries")
    return replace(StoreOptions(config=config), retry=RetryPolicy(retries_max=retries))
