"""The workload of ``shale compaction simulate``: from options, a file of flushes, or a database."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shale.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from shale.compaction.simulate.workload import FlushHistory, Keys, RecordedFlush, Workload
    from shale.types import Manifest
    from shale_cli.framework.session import CliSession

_READS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The options as given; ``history`` is the recorded history of a database."""

    rate: str
    duration: str
    l0_size: str
    key_bytes: int
    value_bytes: int
    initial_keys: int | None
    keys: str
    overwrites: float
    deletes: float
    ttl: str | None
    file: str | None
    seed: int
    rows: int
    history: "FlushHistory | None" = None

    def load(self) -> "Workload":
        """Return the workload.

        Raises:
            InvalidRequestError: an option or a line of the file is invalid; the message names it.
        """
        from shale.compaction.simulate.workload import ROW_OVERHEAD_BYTES, Workload
        from shale.core.settings_values import parse_duration_s, parse_size

        initial_keys = self.initial_keys
        if initial_keys is None and self.history is not None:
            initial_keys = self.history.initial_bytes // (self.key_bytes + self.value_bytes + ROW_OVERHEAD_BYTES)
        return Workload(
            rate_bytes_s=parse_size(self.rate, name="--rate"),
            duration_s=parse_duration_s(self.duration, name="--duration"),
            l0_bytes=parse_size(self.l0_size, name="--l0-size"),
            key_bytes=self.key_bytes,
            value_bytes=self.value_bytes,
            initial_keys=initial_keys or 0,
            keys=_keys(self.keys),
            overwrite_share=self.overwrites,
            delete_share=self.deletes,
            ttl_s=None if self.ttl is None else parse_duration_s(self.ttl, name="--ttl"),
            recorded=self._recorded(),
            seed=self.seed,
            rows_max=self.rows,
        )

    async def with_history(self, session: "CliSession") -> "LoadOptions":
        """Return these options with the flushes of the database.

        Raises:
            InvalidRequestError: a file is given as well.
            LatestRecordMissing: the database does not exist.
        """
        from shale.compaction.simulate.workload import history_of
        from shale.errors import InvalidRequestError

        if self.file is not None:
            raise InvalidRequestError("--load and --from-database: give only one of them")
        return replace(self, history=history_of(await _read_manifests(session)))

    def _recorded(self) -> "tuple[RecordedFlush, ...] | None":
        from shale.compaction.simulate.workload import recorded_flushes

        if self.history is not None:
            return self.history.flushes
        return None if self.file is None else recorded_flushes(list(_read_flushes(self.file)))


def _keys(name: str) -> "Keys":
    from shale.compaction.simulate.workload import Keys
    from shale.errors import InvalidRequestError

    try:
        return Keys(name)
    except ValueError:
        raise InvalidRequestError(f"--keys: {name!r} is none of {', '.join(Keys)}") from None


def _read_flushes(file: str) -> "Iterator[RecordedFlush]":
    from shale.errors import InvalidRequestError

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"--load {file}: {error}") from error
    return _parsed(file, text.splitlines())


def _parsed(file: str, lines: Iterable[str]) -> "Iterator[RecordedFlush]":
    import orjson
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    from shale.compaction.simulate.workload import RecordedFlush
    from shale.errors import InvalidRequestError

    adapter = TypeAdapter(RecordedFlush, config=ConfigDict(allow_inf_nan=False))
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield adapter.validate_python(orjson.loads(line))
        except (ValidationError, orjson.JSONDecodeError) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            message = f'--load {file}: line {number}: {reason}; want {{"at_s": 12.5, "bytes": 67108864}}'
            raise InvalidRequestError(message) from None


async def _read_manifests(session: "CliSession") -> "list[Manifest]":
    import anyio

    from shale.protocol.manifest_store import ManifestStore

    reads = anyio.Semaphore(_READS_MAX)
    found: dict[int, Manifest] = {}
    async with session.open_store() as store:
        manifests = ManifestStore(store, session.path, session.env)
        await manifests.read_latest()

        async def read(file_id: int) -> None:
            async with reads:
                manifest = await manifests.read(file_id)
            if manifest is not None:  # garbage collection may have deleted it
                found[file_id] = manifest

        async with anyio.create_task_group() as tasks:
            for each in await manifests.list_versions():
                tasks.start_soon(read, each.id)
    return [found[file_id] for file_id in sorted(found)]
