"""Drives a real Chromium: the system's, with the system's driver. Nothing is downloaded. Each run has a new profile.

The browser's own requests to its maker, for updates and the like, are switched off.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from selenium import webdriver

from tests.end_to_end.support.npm import npm_package
from tests.end_to_end.support.processes import HarnessError, scratch, wait_until

AXE: Final = "4.14.1"
_ARGUMENTS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
    "--disable-extensions", "--hide-scrollbars", "--force-device-scale-factor=1", "--lang=en",
)  # fmt: skip


class Browser:
    """One page in Chromium."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def show(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Give the page this size, and the user's preference for a dark or light page."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def run(self, script: str, *arguments: object) -> Any:  # noqa: ANN401 - whatever the script returns
        """Run JavaScript in the page, and return its result."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        """Return the visible text of an element, or an empty text if there is none."""
        found: str = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return found

    def wait_for(self, script: str, *arguments: object, what: str, timeout_s: float = 20) -> None:
        """Wait until a JavaScript expression is true. Raises HarnessError if it does not become true in time."""
        wait_until(lambda: bool(self.run(f"return {script}", *arguments)), timeout_s=timeout_s, what=what)

    def axe(self) -> list[str]:
        """Return what axe finds wrong with the page: for each fault its rule, its help and the first element."""
        self.run((npm_package("axe-core", AXE) / "axe.min.js").read_text(encoding="utf-8"))
        found = self.driver.execute_async_script("axe.run(document).then(arguments[0])")
        if not found["passes"]:
            raise HarnessError("axe has checked nothing")
        return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html']}" for one in found["violations"]]

    def picture(self) -> bytes:
        """Return the whole page as PNG, also what lies below the visible part."""
        png: bytes = self.driver.get_screenshot_as_png()
        return png

    def errors(self) -> list[str]:
        """Return the errors that the browser has logged since the last call, such as violations of the policy."""
        lines = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(one["message"]) for one in lines if one["level"] == "SEVERE"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium during a ``with`` block."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        raise HarnessError("chromium or chromedriver is missing: make tools installs both")
    with scratch("chromium") as directory:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for argument in (*_ARGUMENTS, f"--user-data-dir={directory}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=driver)
        running = webdriver.Chrome(options=options, service=service)
        try:
            running.set_script_timeout(60)
            yield Browser(running)
        finally:
            running.quit()
