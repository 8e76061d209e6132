"""``make docs`` builds a site whose pages and search work without a network."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import pytest

# The build of the site takes seconds. In between, test_readme.py finds links that lead nowhere.
pytestmark = pytest.mark.kafka

_REPOSITORY = Path(__file__).parents[1]
_LOADING = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}


class _Page(HTMLParser):
    """The links, resources and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if values.get("rel") not in {"canonical", "next", "prev"} and _LOADING.get(tag) in values:
            self.loaded.append(values[_LOADING[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    built = subprocess.run(
        command,
        cwd=_REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    return {path: _Page(path) for path in site.rglob("*.html")}


def test_every_page_of_docs_is_in_the_site(site: Path) -> None:
    docs = _REPOSITORY / "docs"
    sources = {path.relative_to(docs).with_suffix(".html") for path in docs.rglob("*.md")}
    built = {path.relative_to(site) for path in site.rglob("*.html")}

    assert {Path(str(path).replace("README.html", "index.html")) for path in sources} <= built


def test_no_page_loads_anything_from_another_host(pages: dict[Path, _Page]) -> None:
    foreign = {path.name: [url for url in page.loaded if urlsplit(url).netloc] for path, page in pages.items()}

    assert sum(len(page.loaded) for page in pages.values()) > len(pages)
    assert {name: urls for name, urls in foreign.items() if urls} == {}


def test_no_style_sheet_loads_anything_from_another_host(site: Path) -> None:
    sheets = list(site.rglob("*.css"))

    assert sheets
    assert [path.name for path in sheets if re.search(r"url\(['\"]?(https?:)?//", path.read_text("utf-8"))] == []


def test_every_link_and_anchor_exists(site: Path, pages: dict[Path, _Page]) -> None:
    missing = []
    for path, page in pages.items():
        for link in page.links:
            if urlsplit(link).scheme or path.name == "404.html":
                continue
            url, anchor = urldefrag(link)
            target = (path.parent / url).resolve() if url else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                missing.append(f"{path.relative_to(site)}: {link}")

    assert missing == []


def test_search_finds_a_metric(site: Path) -> None:
    assert "kafka_quota_proxy_throttle_seconds_total" in (site / "search" / "search_index.json").read_text("utf-8")
