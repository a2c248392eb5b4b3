"""SIGHUP: read the settings again and take over what can change while running (docs/operations.md 9)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from shale.env import Clock
from shale.service.settings import DaemonSettings, Loaded, SettingsError, load
from shale.telemetry.events import Event
from shale.telemetry.log import EventLog
from shale.telemetry.log_output import set_level
from shale.telemetry.metrics import Metrics

S = TypeVar("S", bound=DaemonSettings)


class Reloader(Generic[S]):
    """Knows the settings in use.  ``on_reload`` holds what the daemon itself wants to take over."""

    def __init__(self, loaded: Loaded[S], argv: Sequence[str], metrics: Metrics, clock: Clock, log: EventLog) -> None:
        self._settings = loaded.settings
        self._argv = argv
        self._clock = clock
        self._log = log
        self._success = metrics.gauge("shale_config_last_reload_success")
        self._when = metrics.gauge("shale_config_last_reload_timestamp_seconds")
        self.on_reload: list[Callable[[S], None]] = []

    def reload(self) -> None:
        """Read everything again; settings that need a restart are named and left as they are."""
        self._when.set(self._clock.now_ms() / 1000)
        try:
            settings = load(type(self._settings), self._argv).settings
        except SettingsError as error:
            self._success.set(0)
            self._log.info(Event.CONFIG_RELOADED, ok=False, error=error)
            return
        self._success.set(1)
        set_level(settings.log.level)
        for take_over in self.on_reload:
            take_over(settings)
        changed = [".".join(names) for names in _differences(self._settings, settings, ())]
        self._log.info(Event.CONFIG_RELOADED, ok=True, key=changed)
        self._settings = settings


def _differences(old: BaseModel, new: BaseModel, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name in type(old).model_fields:
        before: Any = getattr(old, name)
        after: Any = getattr(new, name)
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            yield from _differences(before, after, (*above, name))
        elif before != after:
            yield (*above, name)
