"""Settings of daemons: sections, sources, loading and reloading."""
