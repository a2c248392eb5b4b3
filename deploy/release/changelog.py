"""Reads ``CHANGELOG.md``: a section per version, the newest first."""

import re


class ReleaseError(Exception):
    """Something must be put right before this version can be released."""


def notes(changelog: str, version: str) -> str:
    """Return the section of a version without its heading.

    Raises:
        ReleaseError: there is no such section, it has no date, or nothing is in it.
    """
    found = re.search(rf"^## {re.escape(version)}( [^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md: there is no section for version {version}; write one")
    if not re.fullmatch(r" \(\d{4}-\d{2}-\d{2}\)", found[1] or ""):
        raise ReleaseError(f"CHANGELOG.md: the heading of version {version} must end with its date: (2026-01-31)")
    text = found[2].strip()
    if not text:
        raise ReleaseError(f"CHANGELOG.md: the section for version {version} is empty")
    return text
