"""A real headless Chromium for tests, spoken to through its debugging pipe; nothing but the standard library.

with Browser() as browser:
    browser.open(path, width=390, height=844)
    browser.evaluate("document.title")
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 30.0


def find_browser() -> str | None:
    """The program, where one is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _start(words: list[str], reads: int, writes: int) -> int:
    """The process of a browser, which reads from descriptor 3 and writes to 4; those given are closed here."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (reads, writes)]
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    moved = [(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in ((null, 1), (null, 2), (high[0], 3), (high[1], 4))]
    process = os.posix_spawn(words[0], words, dict(os.environ), file_actions=moved)
    for fd in (reads, writes, null, *high):
        os.close(fd)
    return process


class Browser:
    """One window. It loads files, and pages of a server in the test: pages must not want any other."""

    def __init__(self) -> None:
        program = find_browser()
        assert program is not None, "no browser is installed"
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-browser-", ignore_cleanup_errors=True)
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            "--disable-dev-shm-usage",
        ]
        flags += ["--no-first-run", "--disable-background-networking", f"--user-data-dir={self._folder.name}"]
        self._process = _start([program, *flags, "about:blank"], theirs_in, theirs_out)
        self._number, self._buffer, self._session = 0, b"", ""
        self.requests: list[str] = []
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self._call("Network.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser."""
        os.close(self._write)
        os.kill(self._process, signal.SIGTERM)
        os.waitpid(self._process, 0)
        os.close(self._read)
        self._folder.cleanup()

    def open(
        self,
        path: Path,
        hash: str = "",
        *,
        width: int = 1280,
        height: int = 800,
        dark: bool = False,
        scripts: bool = True,
    ) -> None:
        """Shows a page that says when it is ready; a narrow window is a phone. Without `scripts` it runs none."""
        self.requests.clear()
        phone = width < 600
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 * phone, mobile=phone
        )
        self._call("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url="about:blank")
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._call("Page.navigate", url=f"file://{quote(str(path))}{hash}")
        told = "document.documentElement?.dataset.ready && document.documentElement.dataset.programs"
        self.wait(told if scripts else "document.readyState === 'complete'")

    def visit(self, url: str) -> None:
        """Shows a page of a server, which says when it is ready."""
        self._call("Page.navigate", url="about:blank")
        self.requests.clear()
        self._call("Page.navigate", url=url)
        self.wait("document.documentElement?.dataset.ready")

    def wait(self, expression: str) -> None:
        """Until an expression holds."""
        end = time.monotonic() + SECONDS
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < end, (
                f"{expression} did not come: {self.evaluate('document.body?.innerText')[:500]}"
            )
            time.sleep(0.02)

    def evaluate(self, expression: str) -> Any:
        """What an expression comes to in the page."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Presses the mouse in the middle of an element, which must be in sight."""
        place = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.evaluate(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({place})")
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, selector: str, points: Sequence[tuple[float, float]]) -> None:
        """Presses the mouse at the first of points, which are shares of an element's width and height, and moves it
        along the others."""
        place = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        left, top, width, height = self.evaluate(f"(b => [b.x, b.y, b.width, b.height])({place})")
        kinds = ["mousePressed", *["mouseMoved"] * (len(points) - 1)]
        for kind, (x, y) in zip((*kinds, "mouseReleased"), (*points, points[-1]), strict=True):
            at = {"x": left + x * width, "y": top + y * height}
            self._call("Input.dispatchMouseEvent", type=kind, **at, button="left", buttons=1, clickCount=1)

    def press(self, key: str) -> None:
        """Presses a key by its name."""
        text = {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _receive(self) -> Any:
        while b"\0" not in self._buffer:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)
