"""Write each alert that Alertmanager sends as one line: state, severity, name, database, summary, runbook.

``docker compose logs alert-receiver`` shows them.
"""

import json
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 8080
MAX_BYTES = 4 * 1024 * 1024


def line_of(alert: dict[str, Any]) -> str:
    """Return the line of one alert of a notification."""
    labels, annotations = alert.get("labels", {}), alert.get("annotations", {})
    words = [alert.get("status", "?"), labels.get("severity", "-"), labels.get("alertname", "?")]
    words.append(f"db={labels.get('db', '-')}")
    words.append(annotations.get("description") or annotations.get("summary", ""))
    words.append(annotations.get("runbook_url", ""))
    return " ".join(" ".join(words).split())


class Receiver(BaseHTTPRequestHandler):
    """Takes notifications, and answers its health check."""

    def do_POST(self) -> None:
        """Log every alert of a notification."""
        length = int(self.headers.get("Content-Length") or 0)
        try:
            if length > MAX_BYTES:
                raise ValueError(f"{length} bytes")
            lines = [line_of(alert) for alert in json.loads(self.rfile.read(length))["alerts"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.close_connection = True
            self.send_error(400, f"not a notification of Alertmanager: {error}")
            return
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        self._accept()

    def do_GET(self) -> None:
        """Answer the health check."""
        self._accept()

    def _accept(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log no requests: only alerts are of interest."""


def main() -> None:
    """Serve until SIGTERM."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = ThreadingHTTPServer(("", port), Receiver)
    sys.stdout.write(f"waiting for alerts on port {server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
