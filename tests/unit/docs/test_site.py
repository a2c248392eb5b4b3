"""The pages as a site: diagrams are what their script draws, links and names of the site exist."""

import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest

import shale

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SECTIONS = ("tutorial", "how-to", "concepts", "reference", "runbooks", "adr")


def script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"deploy/site/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_diagrams_are_fresh() -> None:
    for path, text in script("diagrams").files().items():
        assert path.read_text() == text, "make gen"


def test_every_diagram_is_shown() -> None:
    shown = {
        name for page in DOCS.rglob("*.md") for name in re.findall(r"images/([\w-]+\.(?:svg|png))", page.read_text())
    }
    assert shown == {path.name for path in (DOCS / "images").iterdir()}


def test_every_page_has_a_place_in_the_navigation() -> None:
    listed = script("hooks").on_config({"docs_dir": str(DOCS)})["nav"]
    pages = {
        page for entry in listed for value in entry.values() for page in ([value] if isinstance(value, str) else value)
    }
    assert pages == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


@pytest.mark.parametrize("section", SECTIONS)
def test_an_index_names_every_page_of_its_section(section: str) -> None:
    index = (DOCS / section / "index.md").read_text()
    pages = {page.name for page in (DOCS / section).glob("*.md")} - {"index.md"}
    listed = set(re.findall(r"\]\(([\w.-]+\.md)\)", index))
    generic = {page for page in pages if page.startswith("life-of-")} if "life-of-…" in index else set()
    assert pages - generic <= listed


def test_the_python_reference_has_every_public_name() -> None:
    text = (DOCS / "reference/python-api.md").read_text()
    assert set(re.findall(r"^::: shale\.(\w+)$", text, re.MULTILINE)) | {"NEVER", "__version__"} >= set(shale.__all__)


def test_files_that_pages_name_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    path = re.compile(r"`((?:shared|services|tests|deploy|helm|schemas|docs)/[\w/.-]+\.\w+)`")
    named = {name for page in pages for name in path.findall(page.read_text())}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_pages_link_to_each_other() -> None:
    """A path in the text is no link on the site; the page of commands is made from help texts, which have no links."""
    code = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
    bare = re.compile(r"(?<!\]\()(?<![\w/.\[])docs/(?:[a-z-]+/)+[a-z0-9-]+\.md")
    pages = {page: code.sub("", page.read_text()) for page in DOCS.rglob("*.md") if page.name != "cli.md"}
    assert [(page.name, path) for page, text in pages.items() for path in bare.findall(text)] == []


def test_names_of_the_library_that_pages_name_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"`(shale(?:\.\w+)+)`", page.read_text())}
    assert len(named) > 20
    assert sorted(name for name in named if not is_name(name) and not is_entry_point_group(name)) == []


def is_name(dotted: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


def is_entry_point_group(name: str) -> bool:
    """Return whether a package looks for entry points under this name."""
    sources = [*(ROOT / "shared").rglob("*.py"), *(ROOT / "services").rglob("*.py")]
    return any(re.search(rf'"{re.escape(name)}"', path.read_text()) for path in sources)
