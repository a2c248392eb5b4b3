"""See docs/concepts/architecture.md for what lives in this room."""
