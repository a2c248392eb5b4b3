"""The callbacks of a daemon's main function: reloaded settings, and rows that are not durable when the stop is late."""

from shale.service.config.settings import load_settings
from shale.service.process import Process
from shale_gc.settings import GcSettings
from tests.unit.service.processes import make_process

ARGUMENTS = ["--set=database.url=memory:///db"]


def process() -> Process[GcSettings]:
    return make_process(load_settings(GcSettings, ARGUMENTS).settings, "gc")


def test_reloaded_settings_reach_every_callback_in_order() -> None:
    running, calls = process(), list[tuple[str, GcSettings]]()
    running.add_reload_callback(lambda new: calls.append(("first", new)))
    running.add_reload_callback(lambda new: calls.append(("second", new)))
    new = load_settings(GcSettings, ARGUMENTS).settings
    running.apply_settings(new)
    assert calls == [("first", new), ("second", new)]


def test_a_callback_that_comes_after_a_reload_gets_its_settings() -> None:
    running, calls = process(), list[GcSettings]()
    older, newer = (load_settings(GcSettings, ARGUMENTS).settings for _ in range(2))
    running.apply_settings(older)
    running.apply_settings(newer)
    running.add_reload_callback(calls.append)
    assert len(calls) == 1
    assert calls[0] is newer


def test_callbacks_name_the_settings_that_need_a_restart() -> None:
    running = process()
    running.add_reload_callback(lambda _: ("tokens",))
    running.add_reload_callback(lambda _: None)
    running.add_reload_callback(lambda _: ("http.bearer_token",))
    assert running.apply_settings(load_settings(GcSettings, ARGUMENTS).settings) == ["tokens", "http.bearer_token"]


def test_undurable_is_none_until_the_main_function_reports_it() -> None:
    running = process()
    assert running.undurable() is None
    running.report_undurable(lambda: (3, 7))
    assert running.undurable() == (3, 7)
