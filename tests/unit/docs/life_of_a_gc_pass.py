"""The scenario of ``docs/concepts/life-of-a-gc-pass.md``: one run of all tasks over a database with old objects."""

import anyio

import shale
from shale.env import Env
from shale.gc.collector import Collector
from shale.gc.options import Task, options_for
from shale.store.memory import MemoryStore
from tests.unit.docs.call_order import Recording


async def run(recording: Recording) -> None:
    env = Env.system()
    store = MemoryStore(env.clock)
    async with shale.Db.open("db", store=store) as db:
        for number in range(3):
            await db.put(b"key %d" % number, b"value")
            await db.flush("memtable")
    await anyio.sleep(0.01)  # an age of 0 is still strict: an object of this millisecond is kept
    tasks = dict.fromkeys((task for task in Task if task is not Task.WAL_FENCE), 0.0)
    collector = Collector(store, "db", env, options_for(tasks, delete_grace_period_s=0.0))
    with recording():
        await collector.run_once()
