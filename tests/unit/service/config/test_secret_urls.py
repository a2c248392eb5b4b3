"""No setting shows the password or the signature of a URL: settings that take one are secret by type."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, SecretStr

from shale.errors import InvalidRequestError
from shale.service.config.access.tokens import TokensSection
from shale.service.config.config_sources import section_of
from shale.service.config.secret_settings import refuse_secret
from shale.service.config.secret_url import SecretUrl
from shale.service.config.settings import DaemonSettings, load_settings
from shale.service.config.settings_error import SettingsError
from shale_cli.commands.debug.bundle.redaction import secrets_of_settings
from shale_cli.framework.daemons import DAEMONS, settings_class
from shale_cli.framework.settings import CommandSettings

PLAIN_TEXT = frozenset(
    {
        *("admin.host", "http.host", "resp.host", "spark.event_host"),
        *("store.region", "backup.store.region"),
        *("checkpoint", "merge_operator", "segment_extractor.name", "segment_extractor.prefix_delimiter"),
        *("compactor_options.worker.compaction_filters", "compactor_options.worker.merge_operator"),
        "compactor_options.worker.name",
        *("database.alias", "database.path", "database_aliases", "databases", "databases_below"),
        *("disk_cache.directory", "encryption.key_file"),
        *("tls.cert_file", "tls.key_file", "tls.client_ca_file", "tls.ca_file"),
        *("enforce_visible_range.start", "enforce_visible_range.end", "filters.prefix", "filters.prefix_delimiter"),
    }
)
"""Every setting of free text that is no URL: names, keys, paths of this machine or in the store, addresses of ports."""

MODELS: list[type[DaemonSettings]] = [*map(settings_class, DAEMONS), CommandSettings]


def _leaves(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            yield ".".join((*above, name)), field.annotation
        else:
            yield from _leaves(section, (*above, name))


def _has_free_text(annotation: object) -> bool:
    if get_origin(annotation) is Literal:
        return False
    values = get_args(annotation)[1:] if get_origin(annotation) is dict else get_args(annotation)
    return annotation is str or any(map(_has_free_text, values))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.ROLE)
def test_a_setting_of_text_is_secret_by_type_unless_it_is_known_to_be_no_url(model: type[DaemonSettings]) -> None:
    found = {name for name, annotation in _leaves(model) if _has_free_text(annotation)}
    assert found <= PLAIN_TEXT, "give a URL the type SecretUrl, and list other text in PLAIN_TEXT"


def test_the_list_of_plain_text_has_no_leftovers() -> None:
    assert {name for model in MODELS for name, annotation in _leaves(model) if _has_free_text(annotation)} == PLAIN_TEXT


CONFIG = """
[database]
url = "s3://bucket/shop/orders"
[store]
endpoint = "http://key:hunter2@127.0.0.1:9000/?sig=hunter2"
[writer]
writer_endpoint = "http://hunter2@host:1"
[gc.backup]
url = "s3://user:hunter2@backups/orders?sv=1&sig=hunter2"
[gc.backup.store]
endpoint = "https://host/?X-Amz-Signature=hunter2"
[worker.spark]
master = "sc://h:1/;token=hunter2"
archive = "https://user:hunter2@host/env.tgz"
conf = { "spark.hadoop.proxy" = "http://user:hunter2@proxy:1", "spark.hadoop.fs.s3a.secret.key" = "hunter2" }
"""


@pytest.mark.parametrize("role", ["writer", "gc", "worker"])
def test_nothing_prints_the_secrets_of_urls(role: str, tmp_path: Path) -> None:
    file = tmp_path / "shale.toml"
    file.write_text(CONFIG)
    settings = load_settings(settings_class(role), ["--config", str(file)]).settings
    shown = [settings.model_dump_json(), repr(settings), str(settings), repr(settings.model_dump())]
    assert [text for text in shown if "hunter2" in text] == []
    assert "http://***@127.0.0.1:9000/?sig=***" in shown[0]
    assert "s3://bucket/shop/orders" in shown[0], "the rest of a URL stays readable"
    assert settings.store.endpoint is not None
    assert settings.store.endpoint.get_secret_value() == "http://key:hunter2@127.0.0.1:9000/?sig=hunter2"
    assert settings.store.endpoint.get_secret_value() in secrets_of_settings(settings)


@pytest.mark.parametrize(
    "url", ["http://user:hunter2@host", "http://hunter2@host", "https://host/a?sig=hunter2", "http://u:hunter/2@host"]
)
def test_a_url_with_a_secret_is_no_argument(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="other users can read a secret") as refusal:
        refuse_secret(settings_class("writer"), "store.endpoint", url)
    assert "hunter" not in str(refusal.value)
    refuse_secret(settings_class("writer"), "store.endpoint", "http://host:9000")


def test_a_secret_url_is_equal_by_its_text() -> None:
    assert SecretUrl("http://a:b@c") == SecretUrl("http://a:b@c") != SecretUrl("http://a:d@c")
    assert SecretUrl("file:///data/a@b") != SecretStr("file:///data/a@b")
    assert str(SecretUrl("file:///data/a@b")) == "file:///data/a@b"


def test_properties_of_spark_are_refused_on_the_command_line_if_a_name_is_that_of_a_secret() -> None:
    worker = settings_class("worker")
    refuse_secret(worker, "spark.conf", '{ "spark.executor.memory" = "1g" }')
    with pytest.raises(InvalidRequestError, match="other users can read a secret"):
        refuse_secret(worker, "spark.conf", '{ "spark.hadoop.fs.s3a.secret.key" = "x" }')


@pytest.mark.parametrize(
    ("role", "setting"),
    [
        ("writer", 'tokens={read=["hunter2"]}'),
        ("writer", 'tokens={ write = "hunter2" }'),
        ("writer", 'http={port=1, bearer_token="hunter2"}'),
        ("writer", 'store={secret_access_key="hunter2"}'),
        ("writer", 'store={endpoint="https://u:hunter2@h/"}'),
        ("gc", 'backup={store={secret_access_key="hunter2"}}'),
        ("worker", 'spark={conf={"spark.hadoop.fs.s3a.secret.key"="hunter2"}}'),
        ("worker", 'spark={conf={spark.hadoop.fs.s3a.secret.key="hunter2"}}'),
        ("worker", "spark.conf.spark.hadoop.fs.s3a.secret.key=hunter2"),
    ],
)
def test_a_section_with_a_secret_is_no_argument(role: str, setting: str) -> None:
    with pytest.raises(SettingsError, match="other users can read a secret") as refusal:
        load_settings(settings_class(role), ["--url", "memory:///db", "--set", setting])
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("setting", ["http={port=1}", "tokens={}", "filters=[{bits_per_key=12}]", 'store={region="x"}'])
def test_a_section_without_a_secret_is_an_argument(setting: str) -> None:
    loaded = load_settings(settings_class("writer"), ["--url", "memory:///db", "--set", setting])
    assert loaded.settings.tokens == TokensSection()
