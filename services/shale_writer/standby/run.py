"""Runs a standby inside the writer's process, until it is the writer or has to stop."""

import ssl
from functools import partial
from typing import Any

import anyio

from shale.client.tls import client_tls
from shale.core.memory_account import MemoryPart
from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.engine.location import ConnectedDatabase
from shale.engine.open import writer_protocol
from shale.engine.options import DbOptions
from shale.engine.reader.options import ReaderOptions
from shale.engine.wal.prefetch import WalPrefetch
from shale.protocol.transactional import EpochTaken
from shale.protocol.wal_store import WalStore
from shale.server.data_ports import DataPorts
from shale.service.config.access.tls_section import TlsSection
from shale.service.health import Health, ServiceState
from shale.service.process import Process
from shale.telemetry.events import Event
from shale_writer.settings import WriterSettings
from shale_writer.standby.claim import claim
from shale_writer.standby.probe import HttpProbe
from shale_writer.standby.promotion import Promotion
from shale_writer.standby.refusal import refusing
from shale_writer.standby.warm import WarmCache, WarmWal
from shale_writer.standby.watch import Standby, Takeover

REFUSED_REQUEST_S = 1.0
"""A refused request takes no longer, so the takeover does not wait for one."""


class StandbyRun:
    """One standby process, from its start to its takeover.

    Args:
        process: the daemon.
        ports: its data ports, which refuse requests meanwhile.
        options: those of the writer that it becomes.
        promotion: requests of the admin port.
    """

    def __init__(
        self, process: Process[WriterSettings], ports: DataPorts, options: DbOptions, promotion: Promotion
    ) -> None:
        self._process = process
        self._ports = ports
        self._options = options
        self._promotion = promotion
        settings = process.settings
        self._database = ConnectedDatabase(
            process.store,
            process.root,
            process.wal_store,
            settings.block_transformer(),
            settings.manifest.write_version,
        )
        self._warm = WarmCache(self._open_reader)
        self._seconds = process.metrics.gauge("shale_standby_takeover_seconds")

    async def become_writer(self) -> Db | None:
        """Wait, and open the database when it is time; return ``None`` if the process has to stop before.

        Raises:
            FencedError: this process had become the writer, and was fenced before it could serve.
            ShaleError: the database cannot be opened.
        """
        process = self._process
        token = process.settings.standby_token()

        def replace_token(changed: WriterSettings) -> None:
            nonlocal token
            token = changed.standby_token()

        process.add_reload_callback(replace_token)
        policy = process.settings.standby.policy()
        async with HttpProbe(
            lambda: token,
            proof_max_age_s=policy.takeover_after_s,
            has_tls=process.settings.tls.is_on,
            verify=_tls(process.settings.tls),
        ) as probe:
            standby = Standby(
                self._database,
                process.env,
                process.metrics,
                policy=policy,
                protocol=writer_protocol(self._database, self._options),
                probe=probe,
            )
            wal = self._warm_wal(standby)
            self._promotion.start = standby.promote
            try:
                async with (
                    refusing(self._ports, lambda: standby.active, request_timeout_s=REFUSED_REQUEST_S),
                    self._warm.running(),
                    wal.running(),
                ):
                    db = await self._until_open_or_stopped(standby, wal)
                if db is not None:
                    process.log.info(Event.STANDBY_CACHE_ADOPTED, ssts=await self._warm.hand_over(db))
            finally:
                await self._warm.aclose()
        return db

    def _warm_wal(self, standby: Standby) -> WarmWal:
        process, section = self._process, self._process.settings.standby
        where = self._database
        files = WalStore(where.wal_store or where.store, where.root, transformer=where.transformer)
        prefetch = WalPrefetch(files, process.env, bytes_max=section.wal_cache_bytes)
        process.memory.account.add_meter(MemoryPart.WAL_ROWS, lambda: prefetch.size_bytes)
        return WarmWal(prefetch, lambda: standby.manifest, section.poll_interval, process.metrics)

    async def _until_open_or_stopped(self, standby: Standby, wal: WarmWal) -> Db | None:
        process, opened = self._process, None
        process.health.set_state(ServiceState.STANDBY)
        process.health.add_status(partial(_status, standby, process.health))
        process.log.info(Event.STANDBY_STARTED, admin_port=process.admin_port, **self._ports.numbers())

        async def work() -> None:
            nonlocal opened
            opened = await self._take_over_in_time(standby, wal)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, name="standby")
            await process.draining.wait()
            tasks.cancel_scope.cancel()
        return opened

    async def _take_over_in_time(self, standby: Standby, wal: WarmWal) -> Db:
        process = self._process
        beat = process.health.watch("standby")
        while True:
            takeover = await standby.wait(beat)
            process.health.unwatch("standby")
            process.log.info(
                Event.STANDBY_TAKING_OVER,
                reason=takeover.reason,
                epoch=takeover.epoch,
                silent_s=round(takeover.silent_s, 1),
            )
            begun_s = process.env.clock.monotonic_s()
            rows = await wal.take()
            cached = len(rows)
            try:
                writer = await claim(
                    self._database, self._options, process.env, process.metrics, takeover, wal_rows=rows
                )
            except EpochTaken as taken:
                wal.resume()
                process.log.info(Event.STANDBY_OVERTAKEN, error=str(taken))
                self._promotion.failed(str(taken))
                beat = process.health.watch("standby")
                continue
            self._record(writer.manifest.epoch, takeover, process.env.clock.monotonic_s() - begun_s, cached)
            return Db(writer, process.stores)

    def _record(self, epoch: int, takeover: Takeover, seconds: float, wal_files_cached: int) -> None:
        process = self._process
        process.metrics.counter("shale_standby_takeovers_total", reason=takeover.reason.value).inc()
        self._seconds.set(seconds)
        process.log.info(
            Event.WRITER_PROMOTED,
            reason=takeover.reason,
            epoch=epoch,
            epoch_before=takeover.epoch,
            duration_ms=round(seconds * 1000),
            wal_files_cached=wal_files_cached,
        )

    async def _open_reader(self) -> DbReader:
        process, options = self._process, self._options
        return await DbReader.open(
            process.root,
            store=process.store,
            wal_store=process.wal_store,
            block_transformer=self._database.transformer,
            manifest_write_version=self._database.manifest_write_version,
            options=ReaderOptions(
                follow_latest=True,
                skip_wal_replay=True,
                block_cache_bytes=options.block_cache_bytes,
                disk_cache=options.disk_cache,
                filter_policies=options.filter_policies or ReaderOptions().filter_policies,
                segment_extractor=options.segment_extractor,
                probe_max_staleness_s=options.probe_max_staleness_s,
            ),
            env=process.env,
        )


def _status(standby: Standby, health: Health) -> dict[str, Any]:
    """Return the status fields of a standby; those of the writer that it has become are others."""
    if health.state is not ServiceState.STANDBY:
        return {}
    active = standby.active
    identity = None if active is None else active.identity
    return {
        "active_epoch": None if active is None else active.epoch,
        "active_endpoint": None if identity is None else identity.endpoint,
        "active_silent_s": round(standby.silent_s, 3),
    }


def _tls(section: TlsSection) -> ssl.SSLContext | bool:
    """Return how a standby checks the active writer, to which it shows its own certificate if that wants one."""
    own = section.client_ca_file is not None
    return client_tls(section.ca_file, section.cert_file if own else None, section.key_file if own else None)
