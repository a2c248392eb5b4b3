"""The meaning of arguments: numbers, times of expiry and patterns."""
