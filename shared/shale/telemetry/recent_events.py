"""The newest lines of the log, kept in memory for the console: a bounded number of bounded size."""

import logging
from collections import deque

EVENTS_MAX = 200
LINE_MAX = 2000


class RecentEvents(logging.Handler):
    """Keeps lines as they are written to a JSON log: with short keys and without secrets."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[str] = deque(maxlen=EVENTS_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        try:
            self._lines.append(self.format(record)[:LINE_MAX])
        except Exception:  # noqa: BLE001 - as in logging's own handlers: a line must not stop the process
            self.handleError(record)

    def newest(self) -> list[str]:
        """Return the lines, the newest first."""
        return list(reversed(self._lines))


RECENT_EVENTS = RecentEvents()
"""The lines of this process; empty until ``configure_logging`` is called."""
