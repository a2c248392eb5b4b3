"""Traces of real daemons, received over OTLP."""
