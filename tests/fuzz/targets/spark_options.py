"""The options of Spark's readers of rows and of changes, which a query or a notebook gives as texts."""

import json

from shale.errors import InvalidRequestError
from shale_spark.changes.options import ChangesOptions
from shale_spark.source.options import SparkReadOptions, where_options
from tests.fuzz.mutation import any_of, words_mutation
from tests.fuzz.oracle import require_equal
from tests.fuzz.target import Target
from tests.fuzz.targets.metadata import JSON_MUTATION, JSON_WORDS, mutate_json

_LEFT_OUT = "store.encryption_key_file"
"""A path, which would be read."""
_ROWS = {
    "url": "s3://bucket/a/b",
    "checkpoint": "00000000-0000-0000-0000-00000000004d",
    "checkpoint_lifetime": "1h",
    "key_format": "hex",
    "start": "00ff",
    "stop": "ff",
    "partition_bytes": "16MiB",
    "tail_bytes": "0",
    "mode": "permissive",
    "pushdown": "true",
    "store.endpoint": "http://127.0.0.1:1",
    "store.max_retries": "3",
    "manifest_write_version": "1",
}
_CHANGES = {
    "store": "memory:///",
    "path": "db",
    "changes": "earliest",
    "max_files_per_trigger": "7",
    "retain": "name",
    "retain_for": "2h",
    "on_gap": "skip",
    "value_format": "json",
}


def _options(data: bytes) -> None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    given = {name: value for name, value in found.items() if isinstance(value, str) and name.lower() != _LEFT_OUT}
    for parse in (SparkReadOptions.parse, ChangesOptions.parse):
        try:
            where = parse(given).where
        except InvalidRequestError:
            continue
        again = SparkReadOptions.parse(where_options(where)).where
        require_equal("a place and that of its options", again, where)


def targets() -> list[Target]:
    modules = ("shale_spark.source.options", "shale_spark.changes.options")
    seeds = [
        json.dumps(each).encode() for each in (_ROWS, _CHANGES, {"keys": "a,b", "prefix": "k", "path": "s3://b/d"})
    ]
    change = any_of(mutate_json, JSON_MUTATION, words_mutation(JSON_WORDS))
    return [Target("spark options", _options, lambda: seeds, (InvalidRequestError,), modules, change)]
