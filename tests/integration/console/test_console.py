"""The console of a writer in Chromium: it stays live while rows are written, and asks no other host."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.console.chromium import Page, chromium, open_page
from tests.integration.writer.writer_process import Client, writer

pytestmark = pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
TOKEN = "r3ad"
STATES = "Number(document.documentElement.dataset.states || 0)"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("console")
    tokens = {"SHALE_TOKENS__READ": TOKEN, "SHALE_TOKENS__WRITE": "wr1te"}
    with writer(folder, "--set", "l0_sst_size_bytes=64KiB", env=tokens) as one:
        yield one


@pytest.fixture
def page(client: Client, tmp_path: Path) -> Iterator[Page]:
    with open_page(tmp_path / "profile") as opened:
        yield opened
        origin = f"http://127.0.0.1:{client.admin_port}/"
        assert [url for url in opened.requests if not url.startswith((origin, "data:", "about:"))] == []
        assert opened.messages == []


def put(client: Client, key: bytes, value: bytes) -> None:
    assert client.put(key, value, Authorization="Bearer wr1te", X_Shale_Durability="memory")[0] == 204


def show(client: Client, page: Page, *, token: str = TOKEN) -> None:
    page.call("Page.navigate", url=f"http://127.0.0.1:{client.admin_port}/#token={token}")
    page.wait_for(f"{STATES} > 0")


@pytest.mark.slow
def test_it_is_live_while_rows_are_written(client: Client, page: Page) -> None:
    stopped = threading.Event()

    def work() -> None:
        number = 0
        while not stopped.is_set():
            put(client, b"key %d" % number, b"v" * 1000)
            number += 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        show(client, page)
        first = page.evaluate("document.querySelector('#flow').innerText")
        page.wait_for(f"{STATES} > 2")
        assert page.evaluate("document.querySelector('#flow').innerText") != first
        page.wait_for("document.querySelectorAll('#lsm rect.l0').length > 0")
        page.wait_for("document.querySelector('#events').innerText.includes('daemon.ready')")
    finally:
        stopped.set()
        worker.join()


@pytest.mark.slow
def test_a_key_is_looked_up_by_keyboard_and_shown_as_text(client: Client, page: Page) -> None:
    put(client, b"<b>", b"<img src=x onerror=alert(1)>")
    show(client, page)
    page.evaluate("document.querySelector('#lookup-title').scrollIntoView(); document.querySelector('#key').focus()")
    page.call("Input.insertText", text="<b>")
    page.press("Enter")
    assert page.wait_for("document.querySelector('#lookup-result pre')?.textContent") == "<img src=x onerror=alert(1)>"
    assert page.evaluate("document.querySelectorAll('main img').length") == 0


@pytest.mark.slow
def test_every_control_is_reached_by_tab(client: Client, page: Page) -> None:
    show(client, page)
    wanted = json.dumps(["token", "plan", "key", "key-format"])
    page.evaluate("document.activeElement.blur(); window.seen = []")
    for _ in range(12):
        page.press("Tab")
        page.evaluate("window.seen.push(document.activeElement.id)")
    assert page.evaluate(f"{wanted}.every((id) => window.seen.includes(id))"), page.evaluate("window.seen")


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(client: Client, page: Page, width: int) -> None:
    page.resize(width, 800)
    show(client, page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_the_picture_follows_the_width_of_the_window(client: Client, page: Page) -> None:
    put(client, b"a", b"v" * 200_000)
    show(client, page)
    drawn = "document.querySelector('#lsm svg')?.viewBox.baseVal.width"
    page.resize(1000, 800)
    page.wait_for(f"{drawn} > 500")
    page.evaluate("streaming.abort()")  # no further state draws it
    page.resize(360, 800)
    page.wait_for(f"{drawn} < 360")


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_a_picture_of_many_ssts_fits_and_says_what_is_missing(client: Client, page: Page, width: int) -> None:
    page.resize(width, 800)
    show(client, page)
    page.evaluate("streaming.abort()")  # no further state draws over the one below
    page.evaluate("""
        const tree = latest.database.trees[0];
        const sizes = [1e12, ...Array(63).fill(2000)];
        Object.assign(tree, {l0: sizes.map((bytes, id) => ({id, bytes})), l0_count: 2000, l0_bytes: 1.5e12});
        Object.assign(tree, {runs: [{id: 1, ssts: 9999, bytes: 1e15}], run_count: 70, run_bytes: 2e15});
        content('lsm').replaceChildren(...show.lsm(latest));
        window.shapes = [...document.querySelectorAll('#lsm rect, #lsm svg text')].map((each) => each.getBBox());
        window.wide = document.querySelector('#lsm svg').viewBox.baseVal.width;
    """)
    assert page.evaluate("shapes.length") > 30
    assert page.evaluate("shapes.filter((box) => box.x + box.width > wide).length") == 0
    said = page.evaluate("document.querySelector('#lsm').innerText")
    drawn = page.evaluate("document.querySelectorAll('#lsm rect.l0').length")
    assert f"and {2000 - drawn:,} more L0 SSTs that are not drawn" in said
    assert "and 69 more sorted runs; all have 1.8 PiB" in said


@pytest.mark.slow
def test_a_hidden_page_follows_nothing(client: Client, page: Page) -> None:
    show(client, page)
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    turn = hide + "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(turn % "true")
    page.wait_for("document.querySelector('#age').textContent === 'paused' && streaming.signal.aborted")
    seen = page.evaluate(STATES)
    page.evaluate(turn % "false")
    page.wait_for(f"{STATES} > {seen}")


@pytest.mark.slow
def test_a_value_of_several_lines_is_shown_as_text(client: Client, page: Page) -> None:
    put(client, b"json", b'{\n\t"a": 1\n}')
    show(client, page)
    page.evaluate(
        "document.querySelector('#key').value = 'json'; document.querySelector('#lookup-form button').click()"
    )
    assert page.wait_for("document.querySelector('#lookup-result pre')?.textContent") == '{\n\t"a": 1\n}'


@pytest.mark.slow
def test_a_browser_at_the_data_port_finds_the_console(client: Client, page: Page) -> None:
    origin = f"http://127.0.0.1:{client.port}/"
    page.call("Page.navigate", url=origin)
    page.wait_for("document.links.length === 2")
    link = page.evaluate("[...document.links].map((link) => link.href)[1]")
    assert link == f"http://127.0.0.1:{client.admin_port}/"
    page.requests[:] = [url for url in page.requests if not url.startswith(origin)]


@pytest.mark.slow
def test_the_dark_theme_has_other_colours(client: Client, page: Page) -> None:
    show(client, page)
    colours = []
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(set(colours)) == 2


@pytest.mark.slow
def test_what_the_collector_would_delete_is_listed_on_request(client: Client, page: Page) -> None:
    show(client, page)
    page.evaluate("document.querySelector('#plan').click()")
    assert "objects" in page.wait_for(
        "document.querySelector('#plan-result p:not(:empty)')?.textContent.match(/.*objects.*/)?.[0]"
    )


def test_what_the_console_does_not_serve_is_a_problem_document(client: Client) -> None:
    for method, path, status in (("GET", "/console/other", 404), ("POST", "/console/events", 405)):
        code, _, headers = client.daemon.request(method, path, port=client.admin_port)
        assert (code, headers["content-type"]) == (status, "application/problem+json")
