"""Takes the picture of the status page, in a real Chromium, of a proxy with real clients.

``python -m bench.picture_status_page [--seconds 45] [--out docs/pictures/status-page.png] [--all FOLDER]``

``--all`` also writes the whole page, wide and narrow, light and dark, into a folder.
"""

import argparse
import time
from pathlib import Path
from typing import Final

from tests.end_to_end.support.chromium import Browser, chromium
from tests.end_to_end.support.status_scene import scene

OUT: Final = Path(__file__).parents[1] / "docs" / "pictures" / "status-page.png"
WIDE: Final = 1280
NARROW: Final = 390
HEIGHT: Final = 618  # the verdict, and the clients
_SETTLES_S: Final = 0.5


def picture(browser: Browser, width: int, *, height: int | None = None, dark: bool = False) -> bytes:
    """Return a picture of the page: of its upper part, or of all if ``height`` is None."""
    browser.show(width, dark=dark)
    time.sleep(_SETTLES_S)
    if height is None:
        browser.show(width, browser.run("return document.documentElement.scrollHeight"), dark=dark)
    else:
        browser.show(width, height, dark=dark)
    time.sleep(_SETTLES_S)
    return browser.picture()


def main() -> None:
    """Run the scene, wait until its rates are steady, and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--all", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    with scene() as proxy, chromium() as browser:
        time.sleep(arguments.seconds)
        browser.driver.get(f"http://{proxy.admin_address}/")
        browser.wait_for("document.querySelectorAll('#throttled tbody tr').length > 2", what="clients are throttled")
        arguments.out.write_bytes(picture(browser, WIDE, height=HEIGHT))
        print(f"{arguments.out}: {arguments.out.stat().st_size} bytes")
        if arguments.all is not None:
            arguments.all.mkdir(parents=True, exist_ok=True)
            for width in (WIDE, NARROW):
                for dark in (False, True):
                    name = f"status-page-{width}-{'dark' if dark else 'light'}.png"
                    (arguments.all / name).write_bytes(picture(browser, width, dark=dark))


if __name__ == "__main__":
    main()
