"""The process of a daemon without its ports, for tests of what runs in it."""

from typing import TypeVar

from shale.env import Env
from shale.service.admin import AdminApp
from shale.service.config.settings import DaemonSettings
from shale.service.health import Health
from shale.service.memory.process_memory import ProcessMemory
from shale.service.process import Process
from shale.store.location import Location, parse_location
from shale.store.memory import MemoryStore
from shale.store.port import ObjectStore
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

S = TypeVar("S", bound=DaemonSettings)


def make_process(
    settings: S,
    component: str,
    *,
    env: Env | None = None,
    store: ObjectStore | None = None,
    wal_store: ObjectStore | None = None,
    location: Location | None = None,
) -> Process[S]:
    """Make a process; without a store it gets an empty one in memory."""
    env, metrics = env if env is not None else Env.system(), Metrics()
    health = Health(env.clock, metrics)
    return Process(
        settings=settings,
        env=env,
        metrics=metrics,
        health=health,
        admin=AdminApp(health, metrics, None),
        admin_port=0,
        store=store if store is not None else MemoryStore(),
        location=location if location is not None else parse_location("memory:///db"),
        log=get_logger(component),
        memory=ProcessMemory(),
        wal_store=wal_store,
    )
