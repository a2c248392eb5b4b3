"""The page of all settings matches what the daemons accept."""

import re

import pytest

from shale.service.config.config_sources import all_settings
from shale_cli.__main__ import main
from shale_cli.framework.daemons import DAEMONS, settings_class
from shale_cli.framework.help.settings_reference import page
from tests.paths import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "reference" / "settings.md"
TEXT = page({role: settings_class(role) for role in DAEMONS})


def test_the_page_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert DOCUMENT.read_text() == TEXT, "run make gen"
    assert main(["config", "reference"]) == 0
    assert capsys.readouterr().out == TEXT


@pytest.mark.parametrize("role", DAEMONS)
def test_every_setting_is_told(role: str) -> None:
    told = TEXT.replace("[]", "")
    everybody, mine = (
        told.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in ("Every daemon", f"`shale {role}`")
    )
    names = {".".join(each) for each in all_settings(settings_class(role))} - {"config"}
    assert len(names) > 30
    assert [name for name in sorted(names) if f"- `{name}` (" not in everybody + mine] == []


def test_every_setting_says_what_it_is() -> None:
    items = [" ".join(item.split()) for item in re.findall(r"^- (`(?:.|\n  )*)", TEXT, re.MULTILINE)]
    assert len(items) > 150
    assert [item for item in items if not re.fullmatch(r"`[^`]+` \([^)]+\): .{10,}", item)] == []


@pytest.mark.parametrize(
    "row",
    [
        "- `flush_interval` (`100ms`):",
        "- `max_unflushed_bytes` (`1GiB`):",
        "- `garbage_collector_options.wal_fence_options.min_age` (`7d`):",
        "- `shutdown.drain_delay` (`0`):",
        "- `store.region` (–):",
        "- `encryption.key_file` (needed):",
        "- `filters[].bits_per_key` (`10`):",
        "- `databases_interval` (`1min`):",
    ],
)
def test_defaults_are_written_as_people_write_them(row: str) -> None:
    assert row in TEXT
