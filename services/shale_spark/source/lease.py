"""Tasks keep the checkpoint of their query alive: nobody else knows that the query still runs."""

from contextlib import suppress
from uuid import UUID

import anyio

from shale.engine.pin import Pin
from shale.engine.where import Stores, Where
from shale.env import Env
from shale.errors import CheckpointMissing, CorruptionError, InvalidDbState, ShaleError, UnavailableError, WalTruncated
from shale.protocol.checkpoints import refresh_checkpoint, release_checkpoints
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import is_destroyed
from shale.protocol.versioned import Versioned
from shale.types import Manifest
from shale_spark.source.plan import ReadPlan
from shale_spark.source.snapshot import SnapshotLost, listed, place_of

_RETRY_S = 5.0
_LET_GO_S = 10.0
_JITTER_SHARE = 20
"""Tasks that come due together spread over this part of a lifetime, and most of them find that another one renewed."""


async def keep_lease(plan: ReadPlan, pin: Pin, stores: Stores, env: Env) -> None:
    """Renew the checkpoint whenever half of its lifetime is over; fails ``pin`` once it cannot be renewed any more.

    Returns at once for a checkpoint that somebody else made: its lifetime is theirs to say.
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
            pin.fail(_lost(plan, lease.checkpoint_id))
            return
        except ShaleError as error:
            # The reader has to tell it: an error here would end the tasks of the read without a word from us.
            pin.fail(error)
            return


async def let_go(where: Where, checkpoint_id: UUID, stores: Stores, env: Env) -> None:
    """Delete a checkpoint that nobody uses any more; if that does not succeed soon, it expires."""
    with suppress(ShaleError), anyio.move_on_after(_LET_GO_S, shield=True):
        stored = await ManifestStore(stores.main, where.root, env).load()
        await release_checkpoints(stored, [checkpoint_id])


async def lost(error: CorruptionError, plan: ReadPlan, stores: Stores, env: Env) -> ShaleError | None:
    """What is to say if objects are gone because nothing protected them; ``None`` if that is not why.

    A checkpoint that is still listed makes ``error`` what it seems to be.
    """
    if isinstance(error, WalTruncated) and plan.lease.lifetime_ms is not None:
        return SnapshotLost(
            f"{error}: {place_of(plan.where)} was flushed and its WAL collected while the query ran; flush it before "
            "large jobs, or let more of the WAL travel with the plans (tail_bytes)"
        )
    if await is_destroyed(stores.main, plan.where.root):
        return InvalidDbState(f"{place_of(plan.where)} was destroyed while it was read")
    manifest = (await ManifestStore(stores.main, plan.where.root, env).load()).value
    try:
        listed(manifest, plan.lease.checkpoint_id, env.clock.now_ms())
    except CheckpointMissing:
        found = _lost(plan, plan.lease.checkpoint_id)
        found.add_note(str(error))
        return found
    return None


async def renew_if_due(plan: ReadPlan, lifetime_ms: int, stores: Stores, env: Env) -> int:
    """When the checkpoint expires now, in milliseconds; nothing is written while half of its life is left.

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

    stored = await ManifestStore(stores.main, plan.where.root, env).load()
    checkpoint = (await stored.apply(change)).value.checkpoint(checkpoint_id)
    if checkpoint is None:
        raise CheckpointMissing(checkpoint_id)
    return checkpoint.expire_s * 1000


def _lost(plan: ReadPlan, checkpoint_id: UUID) -> SnapshotLost:
    return SnapshotLost(
        f"checkpoint {checkpoint_id} of {place_of(plan.where)}, which this DataFrame reads, has expired or was "
        "deleted: load the DataFrame again, with a longer checkpoint_lifetime, or name a checkpoint of your own"
    )
