"""Checks of one stored SST: what readers rely on, and what only its writer guarantees."""
