"""The page of all settings is what the daemons take."""

from pathlib import Path

import pytest

from shale.service.layers import all_settings
from shale_cli.__main__ import PROCESSES, main
from shale_cli.config import settings_class
from shale_cli.settings_reference import page

DOCUMENT = Path(__file__).parents[3] / "docs" / "settings.md"
TEXT = page({role: settings_class(role) for role in PROCESSES})


def test_the_page_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert DOCUMENT.read_text() == TEXT, "run make gen"
    assert main(["config", "reference"]) == 0
    assert capsys.readouterr().out == TEXT


@pytest.mark.parametrize("role", PROCESSES)
def test_every_setting_is_told(role: str) -> None:
    told = TEXT.replace("[]", "")
    own = "compactor" if role == "worker" else role
    everybody, mine = (
        told.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in ("Every daemon", f"`shale {own}`")
    )
    names = {".".join(each) for each in all_settings(settings_class(role))} - {"config"}
    assert len(names) > 30
    assert [name for name in sorted(names) if f"| `{name}` |" not in everybody + mine] == []


def test_every_setting_says_what_it_is() -> None:
    rows = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    assert [row[0] for row in rows if len(row) != 3 or len(row[2]) < 12] == []


@pytest.mark.parametrize(
    "row",
    [
        "| `flush_interval` | `100ms` |",
        "| `max_unflushed_bytes` | `1GiB` |",
        "| `garbage_collector_options.wal_fence_options.min_age` | `7d` |",
        "| `shutdown.drain_delay` | `0` |",
        "| `store.region` | – |",
        "| `encryption.key_file` | needed |",
        "| `filters[].bits_per_key` | `10` |",
        "All of `shale compactor`, except `embedded_worker` and `take_over`.",
    ],
)
def test_defaults_are_written_as_people_write_them(row: str) -> None:
    assert row in TEXT
