"""Text that comes from others, on a terminal."""


def printable(text: str) -> str:
    """Escape what is not printed, such as ends of lines and the escape sequences of terminals."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
