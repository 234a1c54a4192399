"""A headless Chromium in a network namespace, spoken to over a pipe (the DevTools protocol)."""

import base64
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

PATIENCE = 60.0


class Browser:
    """One page. namespace: where it is; empty: where the test is. profile: a directory of its own."""

    def __init__(self, namespace: str, profile: Path) -> None:
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        switches = f"--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe --user-data-dir={profile}"
        script = f"exec chromium {switches} about:blank 3<&{read_commands} 4>&{write_answers}"
        self._log = (profile.parent / "chromium.log").open("w")
        self._process = subprocess.Popen(
            [*(["ip", "netns", "exec", namespace] if namespace else []), "bash", "-c", script],
            pass_fds=(read_commands, write_answers),
            stdout=self._log,
            stderr=self._log,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._buffer = b""
        self._number = 0
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.errors: list[str] = []

    def close(self) -> None:
        os.close(self._commands)
        self._process.terminate()
        self._process.wait()
        os.close(self._answers)
        self._log.close()

    def call(self, method: str, **parameters: object) -> Any:
        self._number += 1
        request: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._commands, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self._next(deadline)
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                return message["result"]
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]))

    def open(self, url: str, *, width: int = 1200, height: int = 800, dark: bool = False) -> None:
        self.show_as(width=width, height=height, dark=dark)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def show_as(self, *, width: int, height: int, dark: bool) -> None:
        """The page that is open, on another screen."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, (
                f"{expression}; the page: {self.value('document.body.innerText')[:2000]}"
            )
            time.sleep(0.05)

    def press(self, key: str, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "")

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0], (
                "the browser is silent"
            )
            piece = os.read(self._answers, 1 << 20)
            assert piece, "the browser ended"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found
