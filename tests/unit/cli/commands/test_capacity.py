"""Estimates of capacity and cost: known points of the formulas, and a page that explains each figure."""

import json
from dataclasses import replace

import pytest

from shale.errors import InvalidRequestError
from shale_cli.__main__ import main
from shale_cli.commands.plan.capacity import GIB, CapacityWorkload, estimates
from tests.paths import REPOSITORY

MIB = 1 << 20
LOAD = CapacityWorkload(
    rate=MIB, live=100 * GIB, row=128, gets=100, hit_ratio=0.9, flush_interval=0.1, l0_size=64 * MIB,
    part_size=8 * MIB, sst_size=256 * MIB, compression=2, write_amp=5, space_amp=1.5, throughput=25 * MIB,
    readers=2, gc_age=900, put_price=5, get_price=0.4, storage_price=0.02,
)  # fmt: skip


def of(load: CapacityWorkload) -> dict[str, float]:
    return {each.name: each.value for each in estimates(load)}


def test_figures_of_a_load() -> None:
    found = of(LOAD)
    assert found["rows_per_s"] == 8192
    assert found["wal_puts_per_s"] == 10
    assert found["l0_flushes_per_s"] == 1 / 64
    assert found["compaction_bytes_per_s"] == 2 * MIB
    assert found["compaction_jobs"] == 0.08
    assert found["puts_per_s"] == pytest.approx(10 + 0.5 / 8 + 2 / 8 + 2 / 64 + 3 * 2 / 256)
    assert found["gets_per_s"] == pytest.approx(10 + 0.5 + 2 * (1 + 0.2 + 0.4))
    assert found["stored_bytes"] == 75 * GIB
    assert found["waiting_bytes"] == pytest.approx(3 * MIB * 900 + 64 * MIB)
    assert found["put_cost_per_month"] == pytest.approx(found["puts_per_s"] * 2.592 * 5)
    assert found["cost_per_month"] == pytest.approx(
        sum(found[f"{each}_cost_per_month"] for each in ("put", "get", "storage"))
    )


def test_rare_rows_have_a_put_each_and_nothing_costs_nothing_but_polls() -> None:
    assert of(replace(LOAD, rate=128))["wal_puts_per_s"] == 1
    idle = of(replace(LOAD, rate=0, gets=0, live=0))
    assert idle["puts_per_s"] == idle["stored_bytes"] == idle["waiting_bytes"] == 0
    assert idle["gets_per_s"] > 0


@pytest.mark.parametrize("wrong", [{"row": 0}, {"flush_interval": 0}, {"hit_ratio": 2}, {"write_amp": 0.5}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(wrong)).replace("_", "-")):
        replace(LOAD, **wrong)  # type: ignore[arg-type]


def test_every_figure_is_explained() -> None:
    page = (REPOSITORY / "docs/how-to/capacity.md").read_text()
    assert [name for name in of(LOAD) if f"`{name}`" not in page] == []


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--rate", "2MiB", "-o", "json"]) == 0
    found = {each["figure"]: each for each in json.loads(capsys.readouterr().out)["figures"]}
    assert found["l0_flushes_per_s"]["value"] == 0.03125
    assert main(["plan", "-o", "table", "--columns", "figure,value"]) == 0
    assert "stored_bytes            130.0 GiB\n" in capsys.readouterr().out
    assert main(["plan", "--rate", "soon"]) == 2
    assert "--rate" in capsys.readouterr().err
