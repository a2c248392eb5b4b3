"""Renewal of a query's checkpoint by its tasks, which alone know that the query still runs."""

from contextlib import suppress
from uuid import UUID

import anyio

from shale.engine.location import DatabaseLocation, DatabaseStores
from shale.engine.read.pins import Pin
from shale.env import Env
from shale.errors import CheckpointMissing, CorruptionError, InvalidDbState, ShaleError, UnavailableError, WalTruncated
from shale.protocol.checkpoints import refresh_checkpoint, release_checkpoints
from shale.protocol.markers import is_destroyed
from shale.protocol.versioned import Versioned
from shale.types import Manifest
from shale_spark.source.manifests import manifests_of
from shale_spark.source.read_plan import ReadPlan
from shale_spark.source.snapshot import SnapshotLost, require_live_checkpoint, show_location

_RETRY_S = 5.0
_LET_GO_S = 10.0
_JITTER_SHARE = 20
"""Tasks that come due together spread over this part of a lifetime; most then find the checkpoint renewed."""


async def keep_lease(plan: ReadPlan, pin: Pin, stores: DatabaseStores, env: Env) -> None:
    """Renew the checkpoint whenever half of its lifetime is over; fail ``pin`` once that is impossible.

    Returns at once for a checkpoint that the caller named: its owner renews it.
    """
    lease = plan.lease
    if lease.lifetime_ms is None:
        return
    expire_ms = lease.expire_s * 1000
    while True:
        due_ms = expire_ms - lease.lifetime_ms // 2 + env.rng.randrange(lease.lifetime_ms // _JITTER_SHARE)
        await anyio.sleep(max(0, due_ms - env.clock.now_ms()) / 1000)
        try:
            expire_ms = await renew_if_due(plan, lease.lifetime_ms, stores, env)
        except UnavailableError:
            await anyio.sleep(_RETRY_S)
        except CheckpointMissing:
            pin.fail(_snapshot_lost(plan, lease.checkpoint_id))
            return
        except ShaleError as error:
            # The pin passes the error to the reader; raised here it would end the read's tasks without a message.
            pin.fail(error)
            return


async def release_lease(where: DatabaseLocation, checkpoint_id: UUID, stores: DatabaseStores, env: Env) -> None:
    """Delete a checkpoint that is no longer used; if that does not succeed soon, it expires."""
    with suppress(ShaleError), anyio.move_on_after(_LET_GO_S, shield=True):
        stored = await manifests_of(stores, where.root, env).load()
        await release_checkpoints(stored, [checkpoint_id])


async def explain_missing(
    error: CorruptionError, plan: ReadPlan, stores: DatabaseStores, env: Env
) -> ShaleError | None:
    """Return the error for objects that are gone because nothing protected them; ``None`` if that is not the reason.

    While the checkpoint is listed, or the newest manifest still needs the WAL file, ``error`` is a real corruption.
    """
    if isinstance(error, WalTruncated) and plan.lease.lifetime_ms is not None:
        latest = (await manifests_of(stores, plan.where.root, env).load()).value
        if latest.replay_after_wal_id < error.id:
            return None
        return SnapshotLost(
            f"{error}: {show_location(plan.where)} was flushed and its WAL collected while the query ran; flush it "
            "before large jobs, or let more of the WAL travel with the plans (tail_bytes)"
        )
    if await is_destroyed(stores.main, plan.where.root):
        return InvalidDbState(f"{show_location(plan.where)} was destroyed while it was read")
    manifest = (await manifests_of(stores, plan.where.root, env).load()).value
    try:
        require_live_checkpoint(manifest, plan.lease.checkpoint_id, env.clock.now_ms())
    except CheckpointMissing:
        found = _snapshot_lost(plan, plan.lease.checkpoint_id)
        found.add_note(str(error))
        return found
    return None


async def renew_if_due(plan: ReadPlan, lifetime_ms: int, stores: DatabaseStores, env: Env) -> int:
    """Renew the checkpoint unless half of its life is left; return when it expires, in milliseconds.

    Raises:
        CheckpointMissing: it is not listed any more.
    """
    checkpoint_id = plan.lease.checkpoint_id

    def change(current: Versioned[Manifest]) -> Manifest | None:
        checkpoint = current.value.checkpoint(checkpoint_id)
        now_ms = env.clock.now_ms()
        if checkpoint is not None and checkpoint.expire_s * 1000 - now_ms > lifetime_ms // 2:
            return None
        return refresh_checkpoint(current.value, checkpoint_id, now_ms=now_ms, lifetime_ms=lifetime_ms)

    stored = await manifests_of(stores, plan.where.root, env).load()
    checkpoint = (await stored.apply(change)).value.checkpoint(checkpoint_id)
    if checkpoint is None:
        raise CheckpointMissing(checkpoint_id)
    return checkpoint.expire_s * 1000


def _snapshot_lost(plan: ReadPlan, checkpoint_id: UUID) -> SnapshotLost:
    return SnapshotLost(
        f"checkpoint {checkpoint_id} of {show_location(plan.where)}, which this DataFrame reads, has expired or was "
        "deleted: load the DataFrame again, with a longer checkpoint_lifetime, or name a checkpoint of your own"
    )
