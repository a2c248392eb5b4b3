"""The framework of the command line: registry, sessions, global options, usage errors."""
