"""The console of daemons in a real browser."""
