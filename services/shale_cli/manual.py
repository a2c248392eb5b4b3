"""``shale help man``: the manual page, in the language of ``man``."""

from collections.abc import Iterator, Sequence

from shale_cli.command_tree import command_tree, global_options


def manual() -> str:
    """The whole page; ``shale help man > /usr/local/share/man/man1/shale.1`` installs it."""
    return "\n".join((*_page(), ""))


def _page() -> Iterator[str]:
    yield '.TH SHALE 1 "" "Shale" "User Commands"'
    yield ".SH NAME"
    yield r"shale \- key-value databases that live entirely in an object store"
    yield ".SH SYNOPSIS"
    yield r".B shale"
    yield r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]"
    yield ".SH OPTIONS"
    yield "They may stand before or behind the command."
    yield from _parameters(global_options())
    yield ".SH COMMANDS"
    for told in command_tree():
        if told.is_hidden or told.is_noun:
            continue
        yield f".SS {_plain(told.usage)}"
        for number, each in enumerate(told.about):
            if number:
                yield ".PP"
            yield _plain(each)
        yield from _parameters(told.parameters)
        for example in told.examples:
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
    """Text that the formatter takes as it is: no line begins with a command."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
