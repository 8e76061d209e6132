"""Links, commands, targets, configurations and examples in README.md and docs/ work."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.pipeline.__main__ import parser as pipeline_parser
from kafka_quota_proxy.proxy.__main__ import _parser
from tests.support.pages import FENCE, PAGES, REPOSITORY, Block, blocks

_HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# The names of code are looked for here. Metrics begin with kafka_quota_proxy_, and test_deploy.py compares them.
SOURCES = ("proxy", "protocol", "config", "pipeline", "kafka_quota_proxy", "tests", "bench", "deploy", "examples")
_OF_CODE = frozenset({".py", ".pyx", ".yaml", ".json", ".html", ".js", ".java", ".go", ".rs", ".tpl"})
_NAME = re.compile(r"[\w/]*\w\.py|(?=[\w.]*[a-z0-9](?:_[a-z]|[A-Z]))[A-Za-z_][\w.]*(?:\(\))?")
# Names of Kafka, its clients and other libraries, and of files of the reader.
FOREIGN = frozenset({
    "AWS_ENDPOINT_URL", "ClockedTestCase", "NotLeaderForPartitionError", "RequestHandlerAvgIdlePercent",
    "RequestQueueTimeMs", "TotalTimeMs", "applyInPandas", "config.py", "kafka_server_kafkaserver_brokerstate",
    "make_dataclass", "offsetsForTimes", "requestTimeout", "test_throttling.py", "tls_malformed_certificate",
    "tls_no_matching_rule", "ThrottlingQuotaExceededError",
})  # fmt: skip
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def commands(program: str) -> list[str]:
    """Return the command lines of ``program``, without comments, environment variables and redirections."""
    lines = [line for block in blocks("sh") for line in block.text.splitlines()]
    typed = [line for block in blocks("console") for line, _ in block.steps]
    lines += [line.partition(" | ")[0].partition(" > ")[0] for line in typed]
    for page in PAGES:
        lines += _INLINE.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    found = (
        line.split("#")[0].partition(" > ")[0].partition(" | ")[0].strip().removeprefix(".venv/bin/") for line in lines
    )
    return sorted({line for line in found if line.startswith(f"{program} ")})


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, numbered as on GitHub."""
    found: list[str] = []
    for heading in _HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return set(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    links = [link.partition("#") for link in _LINK.findall(text) if "://" not in link]

    assert [target for target, _, _ in links if target and not (page.parent / target).exists()] == []
    led = [(page.parent / target if target else page, anchor) for target, _, anchor in links if anchor]
    assert [(to.name, anchor) for to, anchor in led if to.suffix == ".md" and anchor not in anchors(to)] == []


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.where)
def test_yaml_blocks_are_valid_configurations(block: Block) -> None:
    loaded = load_bytes(block.text.encode(), file=block.where)

    assert loaded.config.listeners
    # The pages say that only brokers may reach such a listener, so the warning is expected.
    is_between_brokers = "inter_broker: true" in block.text
    assert [warning.key for warning in loaded.warnings] == is_between_brokers * ["listeners[0].inter_broker"]


# ``tests/test_source_page.py`` uses the source of the page for contributors.
_SHORT = [block for block in blocks("python") if "add-a-source-of-rules" not in block.where]


@pytest.mark.parametrize("block", _SHORT, ids=lambda block: block.where)
def test_python_blocks_run(block: Block) -> None:
    assert "assert " in block.text

    exec(compile(block.text, block.where, "exec"), {"__name__": "example"})  # noqa: S102  (our own documents)


@pytest.mark.parametrize("line", commands("make"))
def test_mentioned_make_targets_exist(line: str) -> None:
    targets = [word for word in shlex.split(line)[1:] if "=" not in word]

    plan = subprocess.run(["make", "--dry-run", *targets], cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert plan.returncode == 0, plan.stderr


@pytest.mark.parametrize("line", commands("kafka-quota-proxy"))
def test_command_lines_are_valid(line: str) -> None:
    words = shlex.split(line)[1:]
    if len(words) == 1:
        words.append("--help")  # a command without arguments

    try:
        _parser(words[0]).parse_args(words)
        status = 0
    except SystemExit as end:  # argparse printed an error, or its help
        status = end.code if isinstance(end.code, int) else 1

    assert status == 0


@pytest.mark.parametrize("line", [part for line in commands("kafka-quota-pipeline") for part in line.split(" && ")])
def test_command_lines_of_the_pipeline_are_valid(line: str) -> None:
    words = shlex.split(line)[1:]

    if len(words) > 1:  # a command without arguments is only a name
        assert pipeline_parser(words[0]).parse_args(words).command == words[0]


def test_names_of_code_on_pages_exist() -> None:
    """A name of code has an underscore, a capital within it, or the end of a Python file."""
    sources = [path for folder in SOURCES for path in (REPOSITORY / folder).rglob("*") if path.suffix in _OF_CODE]
    sources += [REPOSITORY / "pyproject.toml", REPOSITORY / "hatch_build.py"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    names = set(re.findall(r"\w+", text)) | {path.name for path in sources} | FOREIGN
    missing = [
        f"{page.relative_to(REPOSITORY)}: {code}"
        for page in PAGES
        for code in _INLINE.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
        if _NAME.fullmatch(code) and not code.startswith("kafka_quota_proxy_")
        for name in ([Path(code).name] if code.endswith(".py") else re.findall(r"\w+", code))
        if name not in names
    ]

    assert missing == [], "\n".join(missing)


def test_the_readme_leads_to_each_page_that_says_how_to_do_something() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")

    names = [page.name for page in (REPOSITORY / "docs/how-to").glob("*.md")]
    assert [name for name in names if f"(docs/how-to/{name}" not in text] == []


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").split()) < 900


def test_pages_contain_examples() -> None:
    assert len(blocks("yaml")) >= 3
    assert len(blocks("python")) >= 2
    assert len(commands("make")) >= 4
    assert len(commands("kafka-quota-proxy")) >= 4
