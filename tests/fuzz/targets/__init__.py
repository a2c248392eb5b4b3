"""The targets, by the subject of their parsers."""

from collections.abc import Sequence

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    admin_calls,
    answers,
    bodies,
    clients,
    column_kernels,
    databases,
    http,
    kernels,
    lock_scripts,
    metadata,
    resp,
    row_imports,
    settings,
    slatedb_databases,
    spark_options,
    spark_tasks,
    sst_sections,
    transactions,
)

_GROUPS = (
    admin_calls,
    answers,
    bodies,
    clients,
    column_kernels,
    databases,
    http,
    kernels,
    lock_scripts,
    metadata,
    resp,
    row_imports,
    settings,
    slatedb_databases,
    spark_options,
    spark_tasks,
    sst_sections,
    transactions,
)


def all_targets() -> Sequence[Target]:
    """Return all targets, by name."""
    return sorted((target for group in _GROUPS for target in group.targets()), key=lambda target: target.name)
