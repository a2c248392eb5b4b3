"""SlateDB's settings: their schema, notation and conversion to options."""
