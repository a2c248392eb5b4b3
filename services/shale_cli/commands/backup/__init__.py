"""``shale backup``."""
