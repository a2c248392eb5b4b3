"""Numbers of JSON documents."""


def without_fraction(value: object) -> object:
    """Return a number without a fraction as an integer: JSON has one type of numbers, in which 5.0 is 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
