"""Reload on SIGHUP: reads the settings again and applies those that can change (docs/how-to/reload-settings.md)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from shale.env import Clock
from shale.service.config.settings import DaemonSettings, LoadedSettings, load_settings
from shale.service.config.settings_error import SettingsError
from shale.telemetry.events import Event
from shale.telemetry.log import LazyLogger
from shale.telemetry.log_output import set_level
from shale.telemetry.metrics import Metrics

S = TypeVar("S", bound=DaemonSettings)


class Reloader(Generic[S]):
    """Holds the settings in use and passes reloaded settings to ``apply``.

    ``apply`` returns the names of settings and sections that it can apply only after a restart.
    """

    def __init__(
        self,
        loaded: LoadedSettings[S],
        argv: Sequence[str],
        metrics: Metrics,
        clock: Clock,
        log: LazyLogger,
        *,
        apply: Callable[[S], Collection[str]],
    ) -> None:
        self._settings = loaded.settings
        self._argv = argv
        self._clock = clock
        self._log = log
        self._success = metrics.gauge("shale_config_last_reload_success")
        self._when = metrics.gauge("shale_config_last_reload_timestamp_seconds")
        self._apply = apply

    def reload(self) -> None:
        """Read the settings again; settings that need a restart are logged and not applied."""
        self._when.set(self._clock.now_ms() / 1000)
        try:
            settings = load_settings(type(self._settings), self._argv).settings
        except SettingsError as error:
            self._success.set(0)
            self._log.info(Event.CONFIG_RELOADED, ok=False, error=error)
            return
        self._success.set(1)
        set_level(settings.log.level)
        kept = self._apply(settings)
        changed = [".".join(names) for names in _differences(self._settings, settings, ())]
        later = [name for name in changed if _is_one(name, kept) or not _is_one(name, type(settings).RELOADED)]
        self._log.info(Event.CONFIG_RELOADED, ok=True, key=changed, restart_needed=later)
        self._settings = settings


def _differences(old: BaseModel, new: BaseModel, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name in type(old).model_fields:
        before: Any = getattr(old, name)
        after: Any = getattr(new, name)
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            yield from _differences(before, after, (*above, name))
        elif before != after:
            yield (*above, name)


def _is_one(name: str, settings: Collection[str]) -> bool:
    """Return whether a setting is one of these, or in one of these sections."""
    return any(name == each or name.startswith(f"{each}.") for each in settings)
