"""The parts of a bundle.  A part that cannot be collected is listed as left out, and the others are still collected."""

import os
import platform
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson

from shale.admin.admin import Admin
from shale.admin.json_values import time_fields
from shale.admin.verify.report import report_json
from shale.client.tls import TlsFiles
from shale.core.lazy_dataclass import dataclass
from shale.errors import ShaleError
from shale.protocol.versioned import VersionMeta
from shale.service.build import FORMATS, revision, version
from shale.store.port import ObjectStore
from shale_cli.commands.debug.bundle.archive import Archive
from shale_cli.commands.debug.bundle.keys import KeyNames, keys_in, without_keys
from shale_cli.commands.debug.bundle.redaction import Redactor
from shale_cli.framework.output.to_json import to_json
from shale_cli.framework.session import CliSession

LISTED_MAX = 200_000
LOG_BYTES_MAX = 10 * 1024 * 1024
_ANSWER_BYTES_MAX = 4 * 1024 * 1024
_ANSWER_TIMEOUT_S = 5.0
_MIN_AGE_MS = 300_000
_PAGES = ("statusz", "readyz?verbose", "livez?verbose", "metrics")
_PREFIXES = ("SHALE_", "AWS_", "AZURE_", "GOOGLE_")
_PACKAGES = (
    "anyio", "backports.zstd", "cramjam", "flatbuffers", "numpy", "obstore", "prometheus-client", "pyarrow", "pydantic",
    "pyspark", "python-ulid", "starlette", "structlog", "uvicorn", "uvloop",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRequest:
    """The parts to collect besides the database.

    ``versions``: how many of the latest manifests and compactions files.  ``daemons``: URLs of admin ports.
    ``tls``: the files of TLS to ask them.  ``settings``: the settings of daemons by role.
    """

    versions: int
    daemons: Sequence[str]
    tls: TlsFiles
    logs: Sequence[Path]
    settings: dict[str, Any]
    verify: bool
    deep: bool
    wal_store: str | None


@dataclass(slots=True)
class Bundler:
    """Collects the parts of a bundle into an archive."""

    session: CliSession
    archive: Archive
    redactor: Redactor
    left_out: list[dict[str, str]] = field(default_factory=list)

    async def fill(self, request: BundleRequest) -> None:
        """Collect all parts, then add ``bundle.json``, which lists the parts and what was left out."""
        for role, settings in request.settings.items():
            self.archive.add_json(f"settings/{role}.json", self.redactor.value(settings))
        for log in request.logs:
            self._log(log)
        for number, url in enumerate(request.daemons):
            await self._daemon(f"daemons/{number}", url, request.tls)
        async with self.session.admin() as admin:
            await self._part("manifests", lambda: self._manifests(admin, request.versions))
            await self._part("compactions", lambda: self._compactions(admin, request.versions))
            await self._part("listing.jsonl", self._main_listing)
            if request.wal_store is not None:
                await self._part("listing-wal.jsonl", self._wal_listing)
            if request.verify:
                await self._part("verify.json", lambda: self._verify(admin, deep=request.deep))
        self.archive.add_json("bundle.json", self._about(request))

    async def _part(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ShaleError as error:
            self._missing(name, str(error))

    def _missing(self, name: str, why: str) -> None:
        self.left_out.append({"what": name, "why": self.redactor.text(why)})

    async def _manifests(self, admin: Admin, count: int) -> None:
        try:
            latest = await admin.states.manifest()
        except ShaleError as error:
            latest = None
            self._missing("manifests of checkpoints", str(error))
        pinned = {int(entry.manifest_id) for entry in latest.value.checkpoints} if latest is not None else set()
        wanted = _wanted(await admin.states.manifest_versions(), count, pinned)
        await self._versions("manifests", wanted, admin.states.manifest)

    async def _compactions(self, admin: Admin, count: int) -> None:
        wanted = _wanted(await admin.states.compactions_versions(), count, set())
        await self._versions("compactions", wanted, admin.states.compactions)

    async def _versions(self, folder: str, wanted: Sequence[int], read: Callable[[int], Awaitable[Any]]) -> None:
        """Add versions.  They are read twice, because ranks can replace keys only when all keys are known."""
        keys: set[bytes] = set()
        if not self.redactor.keeps_keys:
            for version_id in wanted:
                found = await self._readable(folder, version_id, read)
                keys.update(keys_in(found.value) if found is not None else ())
        names = KeyNames(keys)
        for version_id in wanted:
            found = await self._readable(folder, version_id, read, tell=self.redactor.keeps_keys)
            if found is not None:
                kept = self.redactor.keeps_keys
                value = to_json(found.value) if kept else without_keys(found.value, names)
                self.archive.add_json(
                    f"{folder}/{version_id:020}.json", {"id": version_id, "value": self.redactor.value(value)}
                )

    async def _readable(
        self, folder: str, version_id: int, read: Callable[[int], Awaitable[Any]], *, tell: bool = True
    ) -> Any:
        try:
            return await read(version_id)
        except ShaleError as error:
            if tell:
                self._missing(f"{folder}/{version_id:020}.json", str(error))
            return None

    async def _main_listing(self) -> None:
        async with self.session.open_store() as store:
            await self._listing("listing.jsonl", store)

    async def _wal_listing(self) -> None:
        async with self.session.open_store() as main, self.session.open_wal_store(main) as store:
            await self._listing("listing-wal.jsonl", store)

    async def _listing(self, name: str, store: ObjectStore) -> None:
        lines: list[bytes] = []
        count = size = 0
        async for page in store.list_pages(f"{self.session.path}/"):
            for meta in page:
                count, size = count + 1, size + meta.size
                if len(lines) < LISTED_MAX:
                    modified = time_fields("last_modified", meta.last_modified_ms)
                    lines.append(orjson.dumps({"key": self.redactor.text(meta.key), "bytes": meta.size, **modified}))
        self.archive.add(name, b"\n".join([*lines, b""]))
        if count > len(lines):
            self._missing(name, f"{count - len(lines)} of {count} objects ({size} bytes in all)")

    async def _verify(self, admin: Admin, *, deep: bool) -> None:
        report = report_json(await admin.verify(deep=deep, quick=not deep), min_age_ms=_MIN_AGE_MS)
        if not self.redactor.keeps_keys:
            # The message of a finding may contain keys; its code is enough.
            for finding in report["findings"]:
                del finding["message"]
        self.archive.add_json("verify.json", self.redactor.value(report))

    async def _daemon(self, folder: str, url: str, tls: TlsFiles) -> None:
        import httpx

        from shale.client.tls import client_tls

        for page in _PAGES:
            name = f"{folder}/{page.partition('?')[0]}.txt"
            try:
                async with (
                    httpx.AsyncClient(timeout=_ANSWER_TIMEOUT_S, verify=client_tls(**tls)) as client,
                    client.stream("GET", f"{url.rstrip('/')}/{page}") as answer,
                ):
                    data = bytearray(f"{answer.status_code}\n".encode())
                    async for chunk in answer.aiter_bytes():
                        data += chunk
                        if len(data) > _ANSWER_BYTES_MAX:
                            break
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                self._missing(name, f"{url}: {error!r}")
                return
            text = bytes(data[:_ANSWER_BYTES_MAX]).decode(errors="replace")
            self.archive.add(name, self.redactor.lines(text).encode())

    def _log(self, path: Path) -> None:
        """Add the last lines of a log file."""
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - LOG_BYTES_MAX))
                data = file.read(LOG_BYTES_MAX)
        except OSError as error:
            self._missing(f"logs/{path.name}", str(error))
            return
        if size > LOG_BYTES_MAX:
            data = data.partition(b"\n")[2]
        name = f"logs/{len(self.archive.names)}-{self.redactor.text(path.name)}"
        self.archive.add(name, f"{self.redactor.lines(data.decode(errors='replace'))}\n".encode())

    def _about(self, request: BundleRequest) -> dict[str, Any]:
        return {
            "schema_version": 1,
            **time_fields("made", self.session.env.clock.now_ms()),
            "database": self.redactor.text(self.session.location.url),
            "wal_store": None if request.wal_store is None else self.redactor.text(request.wal_store),
            "shale": {"version": version(), "revision": revision(), "formats": FORMATS},
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
            "packages": {name: found for name in _PACKAGES if (found := _package(name)) is not None},
            "variables": sorted(name for name in os.environ if name.startswith(_PREFIXES)),
            "keys": "kept" if self.redactor.keeps_keys else "replaced by their ranks",
            "daemons": [self.redactor.text(url) for url in request.daemons],
            "files": sorted(self.archive.names),
            "left_out": self.left_out,
        }


def _wanted(versions: Sequence[VersionMeta], count: int, pinned: set[int]) -> list[int]:
    """Return the ids of the latest versions, and of as many older versions that checkpoints keep."""
    newest = [meta.id for meta in versions[-count:]]
    kept = [meta.id for meta in versions[:-count] if meta.id in pinned][-count:]
    return [*kept, *newest]


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
