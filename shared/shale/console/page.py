"""The HTML of the console, and its files.

The server renders the frame of the page and what it knows without I/O; the script fills the rest.  All values are
escaped here or set as text by the script.  The policy allows no inline script, and nothing from another origin.
"""

from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PANELS = {
    "lsm": "LSM tree",
    "flow": "WAL and memory",
    "epochs": "Epochs and boundaries",
    "compactions": "Compactions",
    "checkpoints": "Checkpoints",
    "counters": "Requests and cache",
    "candidates": "Next deletions",
    "lookup": "Look up a key",
    "process": "Process",
    "events": "Recent events",
}


@cache
def asset(name: str) -> bytes:
    """Return the script or the style sheet."""
    return files("shale.console").joinpath("assets", name).read_bytes()


def render_page(status: Mapping[str, Any], *, is_open: bool, can_look_up: bool) -> str:
    """Return the page.

    Args:
        status: the status of the process.
        is_open: the port requires no token.
        can_look_up: the process can read rows.
    """
    role, db = escape(str(status.get("role", ""))), escape(str(status.get("db", "")))
    version = escape(str(status.get("version", "")))
    panels = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>'
        f'<div class="content">{_CONTENT.get(name, "")}</div></section>'
        for name, title in _PANELS.items()
        if name != "lookup" or can_look_up
    )
    return f"""<!doctype html>
<html lang="en" data-open="{str(is_open).lower()}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{db} · {role} · Shale</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="console.css">
<script src="console.js" defer></script>
</head>
<body>
<a class="skip" href="#lsm">Skip to the state</a>
<header>
<h1>{db}</h1><p><span>{role}</span> <span>Shale {version}</span> <span id="age" role="status">connecting</span></p>
<form id="token-form"><label for="token">Token</label>
<input id="token" type="password" autocomplete="off" spellcheck="false"><button>Use</button></form>
</header>
<p id="problem" role="alert" hidden></p>
<main>
{panels}
</main>
<noscript>This page needs JavaScript for its numbers; <code>shale db info</code> shows the same.</noscript>
</body>
</html>
"""


_CONTENT = {
    "candidates": '<button id="plan">List what a pass would delete</button><div id="plan-result"></div>',
    "lookup": '<form id="lookup-form"><label for="key">Key</label><input id="key" autocomplete="off" '
    'spellcheck="false" required><select id="key-format" aria-label="Format of the key"><option>text</option>'
    '<option>hex</option></select><button>Get</button></form><div id="lookup-result" role="status"></div>',
}
