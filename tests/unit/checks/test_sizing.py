"""The check of sizes understands the formulas of the page."""

import pytest

from tests.checks.sizing import MIB, evaluate, formulas

VALUES = {
    "max_unflushed_bytes": 1.0,
    "block_cache_bytes": 10.0,
    "request bodies": 100.0,
    "rows of the WAL that are not in L0": 1000.0,
    "compactor_options.worker.memory_bytes": 10_000.0,
    "version": 1.0,
    "SST in use": 10.0,
    "one manifest": 1000.0,
}


def test_each_daemon_has_a_formula_with_known_names() -> None:
    found = {name: evaluate(formula, VALUES) - 80 * MIB for name, formula in formulas().items()}
    assert found == {"writer": 111.75, "reader": 2010, "worker": 10_000, "compactor": 0, "gc": 24 + 160 + 1000}


def test_a_name_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError, match="something else"):
        evaluate("80 MiB + 2 × something else", VALUES)
