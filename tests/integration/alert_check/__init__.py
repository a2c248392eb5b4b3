"""Alerts with real daemons, a real Prometheus and a real Alertmanager."""
