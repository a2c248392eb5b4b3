"""Settings and commands of docs/how-to/spark.md exist."""

import re
import tomllib

from shale.service.config.spark_section import SparkSection
from shale_spark.cli.app import app
from tests.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "how-to" / "spark.md").read_text()


def test_every_setting_is_in_the_table_and_nothing_else() -> None:
    told = re.findall(r"^- `spark\.(\w+)`", PAGE, re.MULTILINE)
    assert told == list(SparkSection.model_fields)


def test_every_command_is_in_the_table_and_nothing_else() -> None:
    told = re.findall(r"^- `shale spark (\w+)", PAGE, re.MULTILINE)
    assert sorted(told) == sorted(command.name or "" for command in app.registered_commands)


def test_the_files_of_the_page_are_read() -> None:
    files = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(files) >= 3
    for text in files:
        section = SparkSection.model_validate(tomllib.loads(text)["spark"])
        assert all(name.startswith("spark.") for name in section.conf)
