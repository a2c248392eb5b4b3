"""``schedule-garbage-collection``: translates SlateDB's command line to the settings of the gc."""

from collections.abc import Sequence

from shale.errors import InvalidRequestError

TASKS = ("manifest", "wal", "wal-fence", "compacted", "compactions", "detach")
_WITHOUT_BOUNDARIES = ("garbage_collector_options.boundary_files_enabled=false", "boundary_files_off_acknowledged=true")


def daemon_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the command line of the daemon; tasks that are not named are disabled.

    Raises:
        InvalidRequestError: no task is named, or a schedule is not ``min_age=…,period=…``.
    """
    left = list(arguments)
    rest: list[str] = []
    schedules: dict[str, dict[str, str]] = {}
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name == "--disable-boundary-files":
            rest += [text for setting in _WITHOUT_BOUNDARIES for text in ("--set", setting)]
        elif name.removeprefix("--") in TASKS and name.startswith("--"):
            if not equals and not left:
                raise InvalidRequestError(f"{name} needs min_age=…,period=…")
            schedules[name[2:]] = _schedule(name, value if equals else left.pop(0))
        else:
            rest.append(name + equals + value)
    if not schedules:
        raise InvalidRequestError(f"name at least one of {', '.join('--' + task for task in TASKS)}")
    for task in TASKS:
        rest += ["--set", f"garbage_collector_options.{task.replace('-', '_')}_options={_section(task, schedules)}"]
    rest += ["--set", "garbage_collector_options.staged_options=null"]  # SlateDB has no such task
    return rest


def _schedule(name: str, text: str) -> dict[str, str]:
    pairs = {key: value for key, _, value in (part.strip().partition("=") for part in text.split(","))}
    if set(pairs) != {"min_age", "period"} or not all(pairs.values()):
        raise InvalidRequestError(f"{name}: {text!r} is not min_age=…,period=…")
    return pairs


def _section(task: str, schedules: dict[str, dict[str, str]]) -> str:
    if task not in schedules:
        return "null"
    schedule = schedules[task]
    interval = f'interval = "{schedule["period"]}"'
    return f"{{{interval}}}" if task == "detach" else f'{{{interval}, min_age = "{schedule["min_age"]}"}}'
