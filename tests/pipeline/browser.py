"""A real browser, headless Chromium, for tests of HTML pages. The tests control it over WebDriver (HTTP)."""

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.support.chromium import AXE
from tests.end_to_end.support.npm import npm_package

ENTER = "\ue007"
TAB = "\ue004"

_BINARIES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# With these arguments the browser connects to no other host.
_ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


class Browser:
    """One browser window. ``driver`` is the URL of chromedriver."""

    def __init__(self, driver: str, binary: str, profile: Path) -> None:
        self._url = driver
        options = {"binary": binary, "args": [*_ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
        }  # fmt: skip
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._url = f"{driver}/session/{answer['sessionId']}"

    def open(self, page: Path) -> None:
        """Load a page from a file."""
        self._call("POST", "/url", {"url": page.resolve().as_uri()})

    def look(self, *, width: int, scheme: str) -> None:
        """Set the width of the window in CSS pixels, and the preferred colour scheme, light or dark."""
        is_phone = width < 600
        self._tell("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=is_phone)
        self._tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def run(self, script: str) -> Any:  # noqa: ANN401  (what the script returns)
        """Run a script in the page, and return its result."""
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def press(self, *keys: str) -> None:
        """Press keys one after the other. Keys without a character have constants in this module."""
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def axe(self) -> list[str]:
        """Return what axe finds wrong with the page: for each fault its rule, its help and the first element."""
        self.run((npm_package("axe-core", AXE) / "axe.min.js").read_text(encoding="utf-8"))
        body = {"script": "axe.run(document).then(arguments[0])", "args": []}
        found = self._call("POST", "/execute/async", body)
        assert found["passes"], "axe has checked nothing"
        return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]

    def save_to(self, directory: Path) -> None:
        """Let the browser save downloads to a directory without asking."""
        self._tell("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(directory))

    def errors(self) -> list[str]:
        """Return the errors that the browser has logged since the last call, such as violations of the policy."""
        return [
            one["message"] for one in self._call("POST", "/se/log", {"type": "browser"}) if one["level"] == "SEVERE"
        ]

    def picture(self, file: Path) -> None:
        """Write a picture of the whole page to a PNG file."""
        found = self._tell("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        self._call("DELETE", "")

    def _tell(self, command: str, **params: object) -> Any:  # noqa: ANN401
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def _call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, method=method, data=data)  # noqa: S310  (our own address)
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.load(answer)["value"]


@contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """Start the browser that is installed on this machine. The test fails if there is none."""
    binary = next(filter(None, map(shutil.which, _BINARIES)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        lacking = "chromedriver" if binary else "Chromium"
        pytest.fail(f"{lacking} is not on the PATH: apt-get install chromium chromium-driver", pytrace=False)
    with subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            window = Browser(f"http://127.0.0.1:{_port(process)}", binary, directory / "profile")
            try:
                yield window
            finally:
                window.close()
        finally:
            process.kill()


def _port(process: subprocess.Popen[str]) -> str:
    said = []
    for line in process.stdout or ():
        said.append(line)
        if found := re.search(r"started successfully on port (\d+)", line):
            return found[1]
    pytest.fail(f"chromedriver ended: {''.join(said)}")
