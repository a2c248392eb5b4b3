"""The view publisher alone: every change makes another super version, and old ones stay as they are."""

import anyio

from shale.engine.read.active_seqs import ActiveSeqs
from shale.engine.read.view_publisher import ViewPublisher
from shale.sst.paths import SstPaths
from shale.sst.process_cache import PROCESS_CACHE
from shale.sst.reader import SstReader
from shale.telemetry.metrics import Metrics
from shale.types import KeyRange
from tests.unit.engine.writer_parts import Parts, make_parts


def publisher_of(parts: Parts) -> ViewPublisher:
    reader = SstReader(
        parts.store,
        SstPaths.of("db", parts.manifest.current),
        PROCESS_CACHE.memory(1 << 20, None),
        parts.env,
        Metrics(),
    )
    buffers = parts.pipeline.buffers
    return ViewPublisher(parts.manifest, buffers, ActiveSeqs(), reader=reader, operator=None, options=parts.options)


def test_a_freeze_makes_another_super_version() -> None:
    async def story() -> None:
        parts = await make_parts()
        views = publisher_of(parts)
        before = views.view
        await parts.pipeline.put(b"k", b"v")
        parts.pipeline.freeze()
        views.publish()
        assert [len(table) for table in views.view.tables] == [0, 1]
        assert views.view.manifest is parts.manifest.current
        assert [len(table) for table in before.tables] == [1], "a published version keeps its tables"
        assert views.point.view is views.view is views.newest_view()

    anyio.run(story)


def test_a_publish_drops_the_points_of_idle_snapshots() -> None:
    async def story() -> None:
        views = publisher_of(await make_parts())
        views.points[7] = views.point
        views.publish()
        assert not views.points

    anyio.run(story)


def test_lookups_ask_after_the_fast_point_is_disabled() -> None:
    async def story() -> None:
        views = publisher_of(await make_parts())
        assert views.fast_point is views.point
        views.disable_fast_point()
        views.publish()
        assert views.fast_point is None

    anyio.run(story)


def test_lookups_of_a_limited_handle_always_ask() -> None:
    async def story() -> None:
        views = publisher_of(await make_parts(enforce_visible_range=KeyRange.half_open(b"a", b"b")))
        assert views.fast_point is None

    anyio.run(story)
