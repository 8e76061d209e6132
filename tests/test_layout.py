"""The tests mirror the packages: the tests of ``protocol/fetch.py`` are found in ``tests/protocol/test_fetch.py``."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
PACKAGES = ("config", "protocol", "proxy", "pipeline")

# Modules without a test module of their own, and where they are tested instead. `__init__` modules are maps.
EXCEPTIONS = {
    # A file is right or wrong as a whole: its faults are found together, so they are tested together.
    "config/checks.py": "tests/config/test_load.py",
    "config/errors.py": "tests/config/test_load.py",
    "config/model.py": "tests/config/test_load.py",
    "config/raw.py": "tests/config/test_load.py",
    "config/schema.py": "tests/config/test_load.py",
    "config/wording.py": "tests/config/test_load.py",
    # What terms are made of, and what they lead to.
    "config/limits.py": "tests/config/test_terms.py",
    "config/ramp.py": "tests/proxy/quota/test_terms.py",
    "proxy/quota/timing.py": "tests/proxy/commands/test_explain.py",
    # Each error is tested where it is raised.
    "proxy/demo/errors.py": "tests/proxy/demo/test_library.py",
    # Processes and clients are tested as what they are, running.
    "proxy/demo/clients.py": "tests/proxy/demo/test_stage.py",
    "proxy/demo/guard.py": "tests/proxy/demo/test_processes.py",
    "proxy/demo/mock.py": "tests/proxy/demo/test_broker.py",
    # A session is one thing with two sides: what goes in at one comes out at the other.
    "proxy/session/state.py": "tests/proxy/session/test_session.py",
    "proxy/session/requests.py": "tests/proxy/session/test_session.py",
    "proxy/session/responses.py": "tests/proxy/session/test_session.py",
    # What a request is charged beside its bytes shows in a session only.
    "proxy/admission.py": "tests/proxy/session/test_charged_requests.py",
    "proxy/exchange.py": "tests/proxy/session/test_mutations.py",
    "proxy/mutations.py": "tests/proxy/session/test_mutations.py",
    "proxy/calls.py": "tests/proxy/session/test_calls.py",
    "proxy/commands/priority.py": "tests/proxy/commands/test_explain.py",
    # What is said is tested as it is read.
    **{
        f"proxy/explanation/{name}.py": "tests/proxy/commands/test_explain.py"
        for name in ("model", "shown", "json_form", "text", "hints")
    },
    # Of no use without what is asked, or what asks.
    "proxy/commands/quotas_client.py": "tests/proxy/commands/test_quotas.py",
    "proxy/quota_changes/ledger.py": "tests/proxy/test_quota_desk.py",
    # What is told, by those who hear it.
    "proxy/quota_topic/told.py": "tests/proxy/quota_topic/test_watcher.py",
    # What clients of a topic ask: tested with those who ask.
    "proxy/quota_topic/asking.py": "tests/proxy/quota_topic/test_reader.py",
    # What is asked of a keeper, and of who writes for it.
    "proxy/quota_keeper/keeper.py": "tests/proxy/test_quota_desk.py",
    "proxy/quota_keeper/written.py": "tests/proxy/quota_keeper/test_topic.py",
    # A disk on the loop: tested with the desk that it keeps for.
    "proxy/quota_keeper/directory.py": "tests/proxy/test_quota_desk.py",
    "proxy/quota_keeper/disk.py": "tests/proxy/test_quota_desk.py",
    # A record that the dialler keeps.
    "proxy/upstream.py": "tests/proxy/test_dialler.py",
    # Kafka's numbers and words: tested where they are told.
    "proxy/quota_store/errors.py": "tests/proxy/quota_store/test_alter.py",
    # Nothing but asyncio and sockets: a real Kafka in front of it says more than any double could.
    "proxy/cluster_reader.py": "tests/end_to_end/test_from_cluster.py",
    "proxy/commands/run.py": "tests/end_to_end/test_reload.py",
    # What a user types is tested as he types it.
    "pipeline/arguments.py": "tests/pipeline/test_main.py",
    "pipeline/commands/running.py": "tests/pipeline/test_main.py",
    **{
        f"pipeline/commands/{name}.py": "tests/pipeline/test_main.py"
        for name in ("simulate", "whatif", "chargeback", "rebalance", "balance")
    },
    # The columns and the errors of all others; what Spark and its file systems do shows where they are used.
    "pipeline/record.py": "tests/pipeline/test_reading.py",
    "pipeline/errors.py": "tests/pipeline/test_main.py",
    "pipeline/session.py": "tests/pipeline/test_main.py",
    "pipeline/files.py": "tests/pipeline/test_writing.py",
    "pipeline/damage.py": "tests/pipeline/test_reading.py",
    # Held against the replay part by part, as the replay of which it is the fast half.
    "pipeline/quiet.py": "tests/pipeline/test_replay.py",
    "pipeline/tried.py": "tests/pipeline/test_whatif.py",
}


def modules() -> list[str]:
    """Return the path of each module, relative to the repository, `__init__` left out."""
    return sorted(
        path.relative_to(REPOSITORY).as_posix()
        for package in PACKAGES
        for path in (REPOSITORY / package).rglob("*.py")
        if path.name != "__init__.py"
    )


def home_of_tests(module: str) -> Path:
    """Return where the tests of ``module`` belong."""
    path = Path(module)
    return REPOSITORY / "tests" / path.with_name(f"test_{path.stem.strip('_')}.py")


@pytest.mark.parametrize("module", [module for module in modules() if module not in EXCEPTIONS])
def test_each_module_has_its_test_module(module: str) -> None:
    assert home_of_tests(module).is_file(), f"{module} has no {home_of_tests(module).relative_to(REPOSITORY)}"


def test_each_exception_is_a_module_without_a_test_module() -> None:
    assert set(EXCEPTIONS) <= set(modules())
    assert [module for module in EXCEPTIONS if home_of_tests(module).exists()] == []
    assert [place for place in EXCEPTIONS.values() if not (REPOSITORY / place).is_file()] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_an_init_module_holds_a_map_and_public_names_only(package: str) -> None:
    for path in (REPOSITORY / package).rglob("__init__.py"):
        lines = path.read_text(encoding="utf-8").splitlines()

        assert lines, f"{path} has no docstring"
        assert lines[0].startswith('"""'), f"{path} has no docstring"
        assert not any(line.startswith(("def ", "class ", "async def ")) for line in lines), f"{path} defines something"
