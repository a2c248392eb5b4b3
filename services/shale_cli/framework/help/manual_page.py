"""``shale help man``: the manual page, in roff."""

from collections.abc import Iterator, Sequence

from shale_cli.framework.help.command_tree import command_tree, global_options


def manual() -> str:
    """Return the page; ``shale help man > /usr/local/share/man/man1/shale.1`` installs it."""
    return "\n".join((*_page(), ""))


def _page() -> Iterator[str]:
    yield '.TH SHALE 1 "" "Shale" "User Commands"'
    yield ".SH NAME"
    yield r"shale \- key-value databases in an object store"
    yield ".SH SYNOPSIS"
    yield r".B shale"
    yield r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]"
    yield ".SH OPTIONS"
    yield "Options may be before or after the command."
    yield from _parameters(global_options())
    yield ".SH COMMANDS"
    for command in command_tree():
        if command.is_hidden or command.is_noun:
            continue
        yield f".SS {_plain(command.usage)}"
        for number, each in enumerate(command.about):
            if number:
                yield ".PP"
            yield _plain(each)
        yield from _parameters(command.parameters)
        for example in command.examples:
            yield ".PP"
            yield ".nf"
            yield f"    {_plain(example)}"
            yield ".fi"
    yield ".SH EXIT STATUS"
    yield "See"
    yield r".BR shale\ help\ exit-codes ."


def _parameters(parameters: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, meaning in parameters:
        yield ".TP"
        yield rf"\fB{_plain(name)}\fR"
        yield _plain(" ".join(meaning.split()))


def _plain(text: str) -> str:
    """Escape text for roff: no line may start with a control character."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
