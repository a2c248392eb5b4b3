"""Everything about one stored SST that can be checked: what readers rely on, and what only its writer promised."""
