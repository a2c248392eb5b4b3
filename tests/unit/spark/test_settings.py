"""The section ``spark`` and the properties a session gets from it."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from shale.errors import InvalidRequestError
from shale.service.config.settings import load_settings
from shale.service.config.spark_section import SPARK_MIN_BYTES, SparkSection, SparkSettings, parse_conf
from shale_compactor.settings import CompactorSettings
from shale_compactor.worker.settings import WorkerSettings
from shale_gc.settings import GcSettings
from shale_spark.session_conf import SparkCommandSettings, properties, with_master, worker_python

FILE = """
[database]
url = "file:///data/orders"

[spark]
executor = "auto"
spark_min_bytes = "1GiB"
master = "spark://10.0.0.1:7077"
ranges = 64

[spark.conf]
spark.executor.memory = "4g"
spark.executor.cores = 2
"spark.dynamicAllocation.enabled" = true
"""
CONF = {
    "spark.executor.memory": "4g",
    "spark.executor.cores": "2",
    "spark.dynamicAllocation.enabled": "true",
}


@pytest.mark.parametrize("model", [CompactorSettings, WorkerSettings, SparkCommandSettings])
def test_one_file_serves_all_that_use_spark(
    model: type[CompactorSettings] | type[WorkerSettings] | type[SparkCommandSettings], tmp_path: Path
) -> None:
    file = tmp_path / "shale.toml"
    file.write_text(FILE)
    section = load_settings(model, ["--config", str(file)]).settings.spark
    assert (section.executor, section.spark_min_bytes, section.ranges) == ("auto", 1 << 30, 64)
    assert section.model_dump(mode="json")["conf"] == CONF
    assert dict(section.settings().conf) == CONF


def test_daemons_without_spark_pass_over_its_section(tmp_path: Path) -> None:
    file = tmp_path / "shale.toml"
    file.write_text(FILE)
    assert load_settings(GcSettings, ["--config", str(file)]).unknown_env == ()


def test_properties_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHALE_SPARK__MASTER", "local[4]")
    monkeypatch.setenv("SHALE_SPARK__CONF", "spark.executor.memory=1g\nspark.jars=a.jar,b.jar\n")
    section = load_settings(SparkCommandSettings, ["--url=file:///data/orders"]).settings.spark
    assert section.settings().master == "local[4]"
    assert dict(section.settings().conf) == {"spark.executor.memory": "1g", "spark.jars": "a.jar,b.jar"}


def test_properties_as_a_table_in_text() -> None:
    assert parse_conf('{ "spark.a" = "1", spark.b.c = true }') == {"spark.a": "1", "spark.b.c": "true"}


@pytest.mark.parametrize("wrong", ["spark.a", "=1", "{ spark.a"])
def test_properties_that_are_none(wrong: str) -> None:
    with pytest.raises(ValidationError):
        SparkSection.model_validate({"conf": wrong})


def test_jobs_stay_in_process_unless_spark_is_chosen() -> None:
    section = SparkSection()
    assert section.executor == "local"
    assert section.spark_min_bytes == SPARK_MIN_BYTES
    assert section.settings() == SparkSettings()


def test_a_local_session_listens_on_the_loopback_address_only() -> None:
    chosen = properties(SparkSettings(master="local[2]"))
    assert chosen["spark.driver.host"] == chosen["spark.driver.bindAddress"] == "127.0.0.1"
    assert chosen["spark.ui.enabled"] == "false"
    assert "spark.driver.host" not in properties(SparkSettings(master="spark://10.0.0.1:7077"))


def test_over_connect_nothing_is_said_that_only_the_server_can_choose() -> None:
    """Spark warns of every such property, once for each session."""
    assert all(name.startswith("spark.sql.") for name in properties(SparkSettings(master="sc://host:15002")))


def test_what_is_said_wins() -> None:
    settings = SparkSettings(conf=(("spark.ui.enabled", "true"), ("spark.sql.session.timeZone", "CET")))
    chosen = properties(settings, {"spark.sql.session.timeZone": "PST"})
    assert (chosen["spark.ui.enabled"], chosen["spark.sql.session.timeZone"]) == ("true", "PST")


@pytest.mark.parametrize(
    ("settings", "environ", "master"),
    [
        (SparkSettings(master="local[3]"), {"SPARK_HOME": "/opt/spark"}, "local[3]"),
        (SparkSettings(conf=(("spark.master", "spark://h:7077"),)), {}, "spark://h:7077"),
        (SparkSettings(), {}, "local[*]"),
        pytest.param(SparkSettings(), {"SPARK_CONF_DIR": "/etc/spark"}, None, id="what Spark is told elsewhere"),
        pytest.param(SparkSettings(), {"PYSPARK_GATEWAY_PORT": "1"}, None, id="started by spark-submit"),
    ],
)
def test_the_master_is_the_one_that_was_meant(
    settings: SparkSettings, environ: dict[str, str], master: str | None
) -> None:
    chosen = with_master(settings, environ)
    assert chosen.master == master
    assert ("spark.driver.host" in properties(chosen)) == (master is not None and master.startswith("local"))


@pytest.mark.parametrize("master", ["nonsense", "local[2", "local[]", "local[two]", "spark:/h:7077", "10.0.0.1:7077"])
def test_a_master_that_is_none_is_named(master: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"spark.master: '{re.escape(master)}' is none of local"):
        with_master(SparkSettings(), {}, master=master)
    with pytest.raises(ValidationError, match="is none of local"):
        SparkSection(master=master)


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2,4]", "local-cluster[2, 1, 1024]", "yarn", "sc://h/;a=b"]
)
def test_masters_of_spark_are_taken(master: str) -> None:
    assert with_master(SparkSettings(master=master), {}).master == master


@pytest.mark.parametrize(
    ("master", "master_said"),
    [(None, "spark://said:7077"), ("local[3]", "local[3]")],
)
def test_what_a_caller_says_of_the_master_wins(master: str | None, master_said: str) -> None:
    settings = SparkSettings(master="local[2]", conf=(("spark.master", "spark://set:7077"),))
    chosen = with_master(settings, {}, master=master, more={"spark.master": "spark://said:7077"})
    assert chosen.master == master_said


@pytest.mark.parametrize(
    ("master", "archive", "python"),
    [
        (None, None, "/own/python"),
        ("local[2]", "env.tgz", "/own/python"),
        ("spark://10.0.0.1:7077", None, "/own/python"),
        ("spark://10.0.0.1:7077", "s3a://bucket/env.tgz", "./environment/bin/python"),
        pytest.param("k8s://https://10.0.0.1", None, None, id="the image's own"),
        pytest.param("sc://10.0.0.1:15002", None, None, id="the server's own"),
    ],
)
def test_the_interpreter_of_workers(master: str | None, archive: str | None, python: str | None) -> None:
    settings = SparkSettings(master=master, archive=archive)
    assert worker_python(settings, own="/own/python") == python
    assert ("spark.archives" in properties(settings)) == (python is not None and python.startswith("./"))


def test_secrets_are_used_and_not_shown() -> None:
    master = "sc://host:15002/;token=hush;user_id=me"
    key = "spark.hadoop.fs.s3a.secret.key"
    section = SparkSection(master=master, conf={key: "hush", "spark.executor.memory": "4g"})
    shown = section.model_dump(mode="json")
    assert shown["master"] == "sc://host:15002/;token=***;user_id=me"
    assert shown["conf"] == {key: "**********", "spark.executor.memory": "4g"}
    assert "hush" not in section.model_dump_json()
    assert section.settings().master == master
    assert dict(section.settings().conf)[key] == "hush"
