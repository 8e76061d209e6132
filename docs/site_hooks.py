"""Hooks of ``mkdocs.yml``: links into the source tree, and the list of decisions."""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

_REPOSITORY: Final = Path(__file__).parent.parent
_LINK: Final = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:  # noqa: ANN401 - mkdocs has no types here
    """List the decisions in the navigation, in the order of their numbers."""
    folder = _REPOSITORY / "docs" / "decisions"
    pages = sorted(f"decisions/{page.name}" for page in folder.glob("[0-9]*.md"))
    config.nav[-1] = {"Decisions": ["decisions/README.md", *pages]}
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Show a link that leaves ``docs/`` as the path of the file: the site has no copy of the sources."""
    here = posixpath.dirname(f"docs/{page.file.src_uri}")

    def path_of(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, link[2]))
        if target.startswith("docs/"):
            return link[0]
        text = link[1]
        return f"`{target}`" if target in text.strip("`") or text.strip("`/") in target else f"{text} (`{target}`)"

    return _LINK.sub(path_of, markdown)
