"""How soon a warm standby writes."""
