"""What MkDocs is told besides its settings: the navigation, and links to files that are no pages."""

import re
from pathlib import Path
from typing import Any

SECTIONS = {
    "Tutorial": "tutorial",
    "How-to": "how-to",
    "Concepts": "concepts",
    "Reference": "reference",
    "Runbooks": "runbooks",
    "Decisions": "adr",
}
FOR_DEVELOPERS = ("adr/", "reference/design-documents", "reference/format", "reference/protocol", "reference/style")
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:shared|services|tests|schemas|deploy|helm|README|SECURITY|CONTRIBUTING|Makefile|Dockerfile|pyproject)[^)]*\)"
)


def on_config(config: Any) -> Any:
    """List the pages of every section, its index first, then by name."""
    docs = Path(config["docs_dir"])
    config["nav"] = [{"Home": "index.md"}]
    for title, folder in SECTIONS.items():
        pages = sorted((docs / folder).rglob("*.md"), key=lambda page: (page.stem != "index", page.stem))
        if pages:
            config["nav"].append({title: [str(page.relative_to(docs)) for page in pages]})
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Show links to source files as text: the site holds pages only.  Rank pages for developers last in a search."""
    if page.file.src_uri.startswith(FOR_DEVELOPERS):
        page.meta["search"] = {"boost": 0.1}
    return OUTSIDE.sub(r"\1", markdown)
