"""Settings: files, the environment, secret files, command lines, and the texts of single options."""

import os
import random
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

from shale.client.authorization import token_of_file
from shale.compaction.requests import parse_request, parse_sources
from shale.core.settings_values import parse_checkpoint_id, parse_duration_s, parse_lifetime_ms, parse_size
from shale.core.token_hash import digest_of_setting, is_token_hash, is_valid_token_hash
from shale.crypto.aes_gcm import AesGcm
from shale.engine.cache_settings import parse_disk_cache
from shale.errors import InvalidRequestError, ShaleError
from shale.format.names import parse_compactions_key, parse_manifest_key, parse_sst_key, parse_wal_key
from shale.service.config.settings import load_settings
from shale.service.tls.expiry import expiry_s
from shale.store.location import normalize_path, parse_location, parse_store_url, without_credentials
from shale.store.two_phase.names import parse_staged_key, slot_of
from shale.types import Ulid
from shale_cli.commands.compaction.request import parse_text
from shale_cli.commands.compaction.simulated_policy import parse_policies
from shale_cli.commands.seq import parse_time
from shale_cli.framework.output.writer import Format, KeyEncoding, Output
from shale_compactor.settings import CompactorSettings
from shale_gc.settings import GcSettings
from shale_reader.settings import ReaderSettings
from shale_spark.source.options import parse_where
from shale_writer.settings import WriterSettings
from tests.fuzz.folder import folder
from tests.fuzz.mutation import any_of, mutate_bytes, words_mutation
from tests.fuzz.target import Target
from tests.fuzz.targets.metadata import JSON_WORDS

_CLASSES = (WriterSettings, CompactorSettings, GcSettings, ReaderSettings)
_URL = ["--url", "memory:///orders"]


@contextmanager
def _surroundings(**variables: str) -> Iterator[None]:
    """Let nothing but these variables and files be read."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({"SHALE_SECRETS_DIR": str(folder() / "secrets"), **variables})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _file(data: bytes) -> None:
    """Load the settings of a daemon from a file; the first byte says which, and whether the file is YAML."""
    kind = data[0] if data else 0
    path = folder() / ("settings.yaml" if kind & 4 else "settings.toml")
    path.write_bytes(data[1:])
    with _surroundings():
        load_settings(_CLASSES[kind & 3], [*_URL, "--config", str(path)])


def _environment(data: bytes) -> None:
    """Load settings from lines ``NAME=value``; the first line may hold options of the command line."""
    lines = data.replace(b"\0", b"").split(b"\n")
    argv = [each.decode(errors="replace") for each in lines[0].split()]
    variables = {}
    for line in lines[1:]:
        name, _, value = line.partition(b"=")
        if name:
            variables[name.decode(errors="replace")] = value.decode(errors="surrogateescape")
    with _surroundings(**variables), suppress(SystemExit):
        load_settings(_CLASSES[len(data) & 3], [*_URL, *argv])


def _secrets(data: bytes) -> None:
    """Load a token from a secret file, and read files of tokens and keys."""
    secrets = folder() / "secrets"
    secrets.mkdir(exist_ok=True)
    files = {"http__bearer_token": data, "store__secret_access_key": data[::-1]}
    for name, content in files.items():
        (secrets / name).write_bytes(content)
    path = folder() / "keys"
    path.write_bytes(data)
    with suppress(InvalidRequestError):
        token_of_file(path)
    with suppress(InvalidRequestError):
        AesGcm.from_file(path)
    with _surroundings():
        load_settings(WriterSettings, _URL)


def _texts(data: bytes) -> None:
    """Read a text as everything that a user may write as one: sizes, durations, ids, URLs, names of objects."""
    text = data.decode(errors="replace")
    for read in (
        parse_size,
        parse_duration_s,
        parse_lifetime_ms,
        parse_checkpoint_id,
        parse_location,
        parse_store_url,
        normalize_path,
        parse_sources,
        parse_time,
        parse_text,
        parse_disk_cache,
        lambda each: parse_where({"url": each}),
        lambda each: parse_policies([each], None),
        *(Output(Format.JSON, encoding).parse for encoding in KeyEncoding),
    ):
        with suppress(ShaleError):
            read(text)
    without_credentials(text)
    if is_token_hash(text) and is_valid_token_hash(text):
        digest_of_setting(text)
    Ulid.parse(text)
    slot_of(text)
    parse_staged_key(text)
    for parse in (parse_manifest_key, parse_compactions_key, parse_sst_key, parse_wal_key):
        with suppress(ShaleError):
            parse("db", text)
    import orjson

    with suppress(ValueError, ShaleError):
        parse_request(orjson.loads(data))


_TOML = b"""
url = "memory:///db"
[store]
endpoint = "http://localhost:1"
[http]
port = 8080
max_body = "16MiB"
[writer.log]
level = "debug"
[wal]
enabled = true
"""
_YAML = b"""
store: {endpoint: "http://localhost:1", allow_http: true}
http: {port: 8080, timeout: 10s}
log:
  level: info
tokens: {read: [a, b], write: "c"}
"""
_LINES = b"""--set http.port=5 --set log.level=info
SHALE_HTTP__PORT=8080
SHALE_WRITER__LOG__LEVEL=debug
SLATEDB_FLUSH_INTERVAL=100ms
SHALE_TOKENS__READ=a,b
SHALE_STORE__OPTIONS={"a": 1}
"""


def _settings_words() -> tuple[bytes, ...]:
    """Return names of settings, and values that are hard to read."""
    from shale.service.config.config_sources import all_settings

    names = {".".join(each) for kind in _CLASSES for each in all_settings(kind)}
    texts = [f"{name} = " for name in sorted(names)] + [
        f"SHALE_{name.replace('.', '__').upper()}=" for name in sorted(names)
    ]
    values = (
        *(b"1e999", b"9" * 5000, b"-1", b"5KiB", b"1d", b"inf", b"nan", b"0x10", b"[[", b"!!python/object:os.system x"),
        *(
            b"&a [*a]",
            b"<<: *a",
            b'"""',
            b"1979-05-27T07:32:00Z",
            b"\x00",
            b"\xff",
            b"{a: {b: {c: 1}}}",
            b"~",
            b"\xf0\x9f\x98\x80",
        ),
        *(b"[" * 3000, b"a.b.c.d = 1\n", b"? x\n", b"- " * 2000, b"--set x=1 ", b"--config /nowhere ", b"1_000"),
    )
    return (*(text.encode() for text in texts), *values, *JSON_WORDS)


def _mutate(rng: random.Random, data: bytes) -> bytes:
    return any_of(mutate_bytes, words_mutation(_words()), words_mutation(_words()))(rng, data)


@cache
def _words() -> tuple[bytes, ...]:
    return _settings_words()


def _certificate(data: bytes) -> None:
    """Read when a certificate expires, of which the input is the content in DER."""
    expiry_s(ssl.DER_cert_to_PEM_cert(data))


def _element(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return bytes([tag, len(content)]) + content


def _certificates() -> list[bytes]:
    times = _element(0x17, b"240101000000Z"), _element(0x18, b"20510101000000Z")
    number, empty = _element(0x02, b"\1"), _element(0x30)
    fields = (number, empty, empty, _element(0x30, *times))
    return [_element(0x30, _element(0x30, *fields)), _element(0x30, _element(0x30, _element(0xA0, number), *fields))]


def _files() -> list[bytes]:
    return [bytes([kind]) + _TOML for kind in range(4)] + [bytes([4 + kind]) + _YAML for kind in range(4)]


def targets() -> list[Target]:
    config = tuple(
        f"shale.service.config.{name}" for name in ("config_sources", "settings", "sections", "access.tokens")
    )
    secrets = ("shale.crypto.aes_gcm", "shale.client.authorization", "shale.service.config.config_sources")
    texts = (
        *("shale.core.settings_values", "shale.store.location", "shale.compaction.requests", "shale.format.names"),
        *("shale.store.two_phase.names", "shale.types.ids", "shale.core.token_hash", "shale_cli.commands.seq"),
        *("shale.engine.cache_settings", "shale_cli.commands.compaction.request", "shale_spark.source.options"),
        *("shale_cli.commands.compaction.simulated_policy", "shale_cli.framework.output.writer"),
    )
    return [
        Target("settings file", _file, _files, (InvalidRequestError,), config, _mutate, weight=2),
        Target("settings environment", _environment, lambda: [_LINES, b"\n"], (InvalidRequestError,), config, _mutate),
        Target("certificate", _certificate, _certificates, (ValueError,), ("shale.service.tls.expiry",)),
        Target("secret files", _secrets, lambda: [b"secret\n", b"k1 " + b"ab" * 16], (InvalidRequestError,), secrets),
        Target(
            "texts",
            _texts,
            lambda: [
                b"16MiB",
                b"1h30m",
                b"s3://bucket/a/b",
                b"SR3,01ARZ3NDEKTSV4RRFFQ69G5FAV",
                b'{"FullSegment": {}}',
                b"db/manifest/00000000000000000001.manifest",
                b"http://a:b@[::1]:5/x?y=%zz",
            ],
            (),
            texts,
            _mutate,
        ),
    ]
