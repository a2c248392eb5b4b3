"""Local store."""
