"""The coordinator: schedules compactions and commits their results."""
