"""Prometheus, Alertmanager and Grafana of the stack."""

import json
import urllib.request
from typing import Any

from tests.integration.compose_check.engine import DAEMONS, HEALTHY_S, CheckError, Engine, say, wait_until
from tests.paths import REPOSITORY

DASHBOARDS = REPOSITORY / "deploy" / "observability" / "dashboards"
ALERT = "SlateDBWriterDown"
SCRAPED_S = 60.0
# A reader looks for news every `manifest_poll_interval`, 10 s by default.
FOLLOWED_S = 30.0
# The rule waits for two minutes, to which add a scrape, two evaluations and the wait of the group.
FIRES_S, RESOLVES_S = 200.0, 90.0
LAG_METRIC = "slatedb_reader_visible_timestamp_seconds"


def no_page(engine: Engine) -> str | None:
    """Return why the first page, of Grafana or else of Prometheus, shows no numbers of the writer."""
    try:
        if engine.has_grafana:
            _got(engine.grafana_port, "/api/health")
        writer = _prometheus(engine, "query?query=slatedb_db_unflushed_limit_bytes")["result"]
    except OSError as error:
        return str(error)
    return None if writer else "Prometheus has no metric of the writer"


def check_targets(engine: Engine) -> None:
    """Prometheus has every daemon, knows Alertmanager, and how far the reader lags."""
    up_s = wait_until("Prometheus", SCRAPED_S, lambda: _targets_down(engine))
    found = _prometheus(engine, "alertmanagers")["activeAlertmanagers"]
    if [each["url"] for each in found] != ["http://alertmanager:9093/api/v2/alerts"]:
        raise CheckError(f"Prometheus sends its alerts to {found}")
    result = _prometheus(engine, f"query?query=time()-{LAG_METRIC}%7Bprocess%3D%22reader%22%7D")["result"]
    if len(result) != 1 or not 0 <= float(result[0]["value"][1]) < FOLLOWED_S + SCRAPED_S:
        raise CheckError(f"the lag of the reader in Prometheus: {result}")
    say(f"Prometheus has every target up after {up_s:.1f} s; the reader lags by {float(result[0]['value'][1]):.1f} s")


def _targets_down(engine: Engine) -> str | None:
    try:
        targets = _prometheus(engine, "targets")["activeTargets"]
    except OSError as error:
        return str(error)
    states = [(target["labels"]["process"], target["health"], target["lastError"]) for target in targets]
    down = [state for state in states if state[1] != "up"]
    return str(down or states) if down or {process for process, *_ in states} != set(DAEMONS) else None


def check_alert(engine: Engine) -> None:
    """The alert of a killed writer reaches Alertmanager and its receiver, and is resolved when the writer is back."""
    engine.compose("kill", "-s", "KILL", "writer")
    fires_s = wait_until(f"{ALERT} in Alertmanager", FIRES_S, lambda: _is_not_active(engine))
    wait_until(f"{ALERT} in the receiver's log", SCRAPED_S, lambda: _is_not_told(engine, "firing"))
    engine.start("writer")
    gone_s = wait_until(f"no {ALERT}", RESOLVES_S, lambda: None if _is_not_active(engine) else "it is active")
    wait_until("up", HEALTHY_S, engine.complaint)
    wait_until(f"{ALERT} resolved in the receiver's log", RESOLVES_S, lambda: _is_not_told(engine, "resolved"))
    say(f"{ALERT} fires {fires_s:.0f} s after the kill, and is resolved {gone_s:.0f} s after its start")


def _is_not_active(engine: Engine) -> str | None:
    try:
        alerts = _got(engine.alertmanager_port, f"/api/v2/alerts?active=true&filter=alertname%3D%22{ALERT}%22")
    except OSError as error:
        return str(error)
    return None if alerts else "it is not active"


def _is_not_told(engine: Engine, state: str) -> str | None:
    log = engine.compose("logs", "alert-receiver")
    return None if f"{state} critical {ALERT} db=orders" in log else f"the log is\n{log}"


def check_page(engine: Engine) -> None:
    """Anonymous users see every dashboard; Grafana reads its files after it is healthy."""
    shown_s = wait_until("Grafana", SCRAPED_S, lambda: _no_dashboards(engine))
    say(f"Grafana shows the dashboards after {shown_s:.1f} s")


def _no_dashboards(engine: Engine) -> str | None:
    wanted = {json.loads(file.read_text())["uid"] for file in DASHBOARDS.glob("*.json")}
    try:
        found = {each["uid"] for each in _got(engine.grafana_port, "/api/search?type=dash-db")}
        asked = _got(engine.grafana_port, "/api/datasources/proxy/uid/prometheus/api/v1/query?query=vector(1)")
    except OSError as error:
        return str(error)
    return None if found == wanted and asked["status"] == "success" else f"dashboards {sorted(found)}, {asked}"


def _prometheus(engine: Engine, path: str) -> Any:
    return _got(engine.prometheus_port, f"/api/v1/{path}")["data"]


def _got(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return json.load(answer)
