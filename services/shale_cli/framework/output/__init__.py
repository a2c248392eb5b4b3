"""Output formats: tables, JSON, YAML, CSV, streams and progress."""
