"""A headless Chromium for the tests of the page, driven through its DevTools pipe."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Browser:
    """One page of a browser; what it complains of is in `complaints`."""

    def __init__(self, send: int, receive: int):
        self._send, self._receive = send, os.fdopen(receive, "rb", buffering=0)
        self._pending = b""
        self._count = 0
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    _session = ""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result; events that come between are looked at."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])
            self._note(answer)

    def open(self, path: Path) -> None:
        """Loads a file and waits until it is there."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        for _ in range(500):
            # Until the new document is there the old one answers.
            if self.run("location.href !== 'about:blank' && document.readyState") == "complete":
                return
            time.sleep(0.02)
        raise AssertionError(f"{path} was not loaded")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; it is not held to the page's policy."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width: int, height: int = 900, *, scale: float = 1) -> None:
        """Sets the window; below 500 it is a phone."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 500,
        )

    def set_dark(self, dark: bool) -> None:
        """Sets what the reader prefers."""
        value = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def allow_scripts(self, allowed: bool) -> None:
        """Whether pages that are opened from now on run their scripts."""
        self.call("Emulation.setScriptExecutionDisabled", value=not allowed)

    def press(self, key: str) -> None:
        """A key on the element that has the focus."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27}
        codes |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}),
            )

    def point(self, x: float, y: float) -> None:
        """Moves the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def photograph(self, path: Path, *, whole: bool = False) -> None:
        """Saves what is shown, or the whole page, as PNG."""
        shown = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shown["data"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            part = self._receive.read(1 << 20)
            if not part:
                raise AssertionError("the browser has gone")
            self._pending += part
        message, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method", ""), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.complaints.append(str(parameters["args"]))

    def close(self) -> None:
        """Lets go of the pipe, at which the browser ends."""
        os.close(self._send)
        self._receive.close()


@contextlib.contextmanager
def start_browser(profile: Path) -> Iterator[Browser]:
    """A browser for the length of a block; the test is skipped where there is none."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    shell = shutil.which("bash")
    if program is None or shell is None:
        pytest.skip("needs chromium or google-chrome, and bash, on PATH")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    theirs_in, send = os.pipe()
    receive, theirs_out = os.pipe()
    # The browser reads commands from descriptor 3 and answers on 4.
    process = subprocess.Popen(
        [shell, "-c", f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}', program, *flags],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    browser = None
    try:
        browser = Browser(send, receive)
        yield browser
    finally:
        if browser is not None:
            browser.close()
        process.terminate()
        process.wait(timeout=20)
