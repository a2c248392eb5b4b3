"""Headless Chromium, driven by its DevTools protocol through a pipe; no package is needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_S = 60.0
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


def chromium() -> str | None:
    """Return the path of a browser, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


class Page:
    """One page, and what it did: its requests, console messages and exceptions."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out = into, out
        self._unread = b""
        self._last_id = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.messages: list[str] = []

    def attach(self) -> None:
        """Open a page and listen to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        self._session = None
        self.call("Browser.close")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Evaluate an expression until it is true."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if found := self.evaluate(expression):
                return found
        raise AssertionError(f"{expression} is not true; {self.messages}; {self.evaluate('document.body.innerText')}")

    def screenshot(self, file: Path, *, width: int, height: int, scheme: str = "light") -> None:
        """Write a picture of the page."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.resize(width, height)
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            code = {"Tab": 9, "Enter": 13}[key]
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            assert select.select([self._out], [], [], WAIT_S)[0], "the browser does not answer"
            piece = os.read(self._out, 1 << 16)
            assert piece, "the browser has ended"
            self._unread += piece
        data, self._unread = self._unread.split(b"\0", 1)
        message: dict[str, Any] = json.loads(data)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(str(params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(f"{params['entry']['level']}: {params['entry']['text']}")


@contextmanager
def open_page(profile: Path) -> Iterator[Page]:
    """Start the browser with an empty profile, and open a page."""
    path = chromium()
    assert path is not None
    commands, into = os.pipe()
    out, answers = os.pipe()
    # The browser reads commands from descriptor 3 and writes answers to 4.
    script = f'exec "$@" 3<&{commands} 4>&{answers}'
    browser = subprocess.Popen(
        ["bash", "-c", script, "browser", path, *OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(commands, answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands)
    os.close(answers)
    try:
        page = Page(into, out)
        page.attach()
        yield page
        page.close()
    finally:
        os.close(into)
        os.close(out)
        try:
            browser.wait(10)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()
