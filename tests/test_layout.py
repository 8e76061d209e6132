"""Tests mirror the packages: ``protocol/fetch.py`` is tested in ``tests/protocol/test_fetch.py``."""

import ast
import re
import runpy
from collections import defaultdict
from functools import cache
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).parent.parent
PACKAGES = ("config", "protocol", "proxy", "pipeline")
# What is not linked into the installed package, but lies in it.
OWN = "kafka_quota_proxy/testing"

# Small modules of a folder that are tested in one test module, by its name.
TOGETHER = {
    "proxy/quota": {
        "bucket": "reservations shadow_bucket bucket_bounds",
        "client_quota_manager": "kafka_rates",
        "connections": "address_limits",
        "entity": "sanitize",
        "fetch_size": "answer_time awaited_fetches",
        "throttle": "token_bucket",
        "throttle_history": "rule_throttle_times",
    },
    "proxy/rules": {
        "model": "text",
        "rule_status": "configured source",
    },
    "proxy/server": {"shutdown": "loop_lag"},
    "proxy/server/brokers": {"faults": "identity"},
    "proxy/server/clients": {"connection_limits": "latency"},
    "proxy/server/tls": {"principal": "distinguished_name", "transport": "record_bounds"},
    "proxy/session": {
        "bucket_turn": "acks_zero in_flight",
        "session": "state",
    },
    "proxy/session/handlers": {"handler": "api_versions other produce table unanswered_only"},
    "proxy/session/replica": {"fetched_partitions": "partition_state"},
    "proxy/session/testing": {"orders": "observed session"},
}
# Other modules without a test module of their own, and where they are tested instead.
EXCEPTIONS = {
    **{
        f"{folder}/{name}.py": f"tests/{folder}/test_{tested}.py"
        for folder, modules in TOGETHER.items()
        for tested, names in modules.items()
        for name in names.split()
    },
    # The faults of a file are found together, so they are tested together.
    "config/cluster_checks.py": "tests/config/test_quotas_from.py",
    "config/errors.py": "tests/config/test_load.py",
    "config/model.py": "tests/config/test_load.py",
    "config/term_values.py": "tests/config/test_terms.py",
    "config/principals.py": "tests/config/test_load.py",
    "config/security.py": "tests/config/test_load.py",
    "config/schema.py": "tests/config/test_load.py",
    "config/value_readers.py": "tests/config/test_load.py",
    "config/sections.py": "tests/config/test_load.py",
    "config/cluster_schema.py": "tests/config/test_load.py",
    # All lists of brokers are read and rewritten by one test.
    "protocol/find_coordinator.py": "tests/protocol/test_generated.py",
    # The parts of a rule's terms, and their texts.
    "proxy/quota/rule_phrases.py": "tests/proxy/cli/test_explain.py",
    # Processes and clients are tested by running them.
    "proxy/cli/demo/clients.py": "tests/proxy/cli/demo/test_runner.py",
    # The base class of three handlers is tested with the one that uses all of it.
    "proxy/session/handlers/whole_request.py": "tests/proxy/session/handlers/test_topic_mutations.py",
    **{
        f"proxy/fair_queue/{name}.py": "tests/proxy/session/test_broker_turn.py"
        for name in ("connection_queue", "queue_stats", "slot_timeouts")
    },
    # Explanations are tested by the output of the command.
    "proxy/cli/explanation/resolve.py": "tests/proxy/cli/test_explain.py",
    "proxy/cli/explanation/output.py": "tests/proxy/cli/test_explain.py",
    # The table is tested with the command that prints it.
    "proxy/cli/clients_table.py": "tests/proxy/cli/test_top.py",
    # The command line and the client of `quotas` are tested through the command.
    "proxy/cli/quotas/arguments.py": "tests/proxy/cli/quotas/test_command.py",
    "proxy/cli/admin_client.py": "tests/proxy/cli/quotas/test_command.py",
    # Requests about a topic are tested with the reader that sends them.
    "proxy/kafka_client/topic_requests.py": "tests/proxy/rules/topic/test_topic_reader.py",
    # The store on disk is tested with the manager.
    "proxy/rules/sqlite/directory_store.py": "tests/proxy/rules/test_administration.py",
    # The dialer returns this record.
    "proxy/server/brokers/broker.py": "tests/proxy/server/brokers/test_dialer.py",
    # Metrics are tested by whole scrapes.
    "proxy/admin/metrics/listeners.py": "tests/proxy/admin/metrics/test_registry.py",
    # Nearest names are tested by what the log suggests.
    "proxy/server/file_state.py": "tests/proxy/server/test_config_reloader.py",
    # The parts of a connection are tested together, over real sockets.
    **{
        f"proxy/server/{name}.py": "tests/proxy/server/clients/test_connection.py"
        for name in ("listener_state", "route", "clients/transport_pair")
    },
    **{
        f"proxy/server/{name}.py": "tests/proxy/server/test_server.py"
        for name in ("active_rules", "replication_limits")
    },
    # Tickets are tested by the sessions that wait for them.
    "proxy/rules/api.py": "tests/proxy/session/handlers/test_quota_requests.py",
    # Kafka's error codes and messages are tested where they are returned.
    "proxy/rules/errors.py": "tests/proxy/rules/test_alter.py",
    # This module only calls a Kafka, so it is tested with a real one.
    "proxy/replication/cluster_reader.py": "tests/end_to_end/test_throttles_from_cluster.py",
    # Arguments are tested by command lines.
    "pipeline/arguments.py": "tests/pipeline/test_main.py",
    "pipeline/import_arguments.py": "tests/pipeline/test_main.py",
    "pipeline/commands/execution.py": "tests/pipeline/test_main.py",
    **{
        f"pipeline/commands/{name}.py": "tests/pipeline/test_main.py"
        for name in ("simulate", "whatif", "chargeback", "rebalance", "balance")
    },
    # Columns, errors, Spark and file systems are tested by the modules that use them.
    "pipeline/record.py": "tests/pipeline/test_usage_reader.py",
    "pipeline/errors.py": "tests/pipeline/test_main.py",
    "pipeline/file_system.py": "tests/pipeline/test_writing.py",
    "pipeline/session.py": "tests/pipeline/test_main.py",
    "pipeline/log_files.py": "tests/pipeline/test_usage_reader.py",
    # The parts of the report are tested by pages.
    # It is the fast part of the replay, and gives the same results.
    "pipeline/unthrottled_fast_path.py": "tests/pipeline/test_replay.py",
    "pipeline/candidate_quotas.py": "tests/pipeline/test_whatif.py",
}


def modules() -> list[str]:
    """Return the path of each module, relative to the repository, without `__init__`."""
    return sorted(
        path.relative_to(REPOSITORY).as_posix()
        for package in (*PACKAGES, OWN)
        for path in (REPOSITORY / package).rglob("*.py")
        if path.name != "__init__.py"
    )


def home_of_tests(module: str) -> Path:
    """Return the path of the test module of ``module``."""
    path = Path(module)
    return REPOSITORY / "tests" / path.with_name(f"test_{path.stem.strip('_')}.py")


def test_each_module_has_its_test_module() -> None:
    without = [module for module in modules() if module not in EXCEPTIONS and not home_of_tests(module).is_file()]
    assert without == []


def test_each_exception_is_a_module_without_a_test_module() -> None:
    assert set(EXCEPTIONS) <= set(modules())
    assert [module for module in EXCEPTIONS if home_of_tests(module).exists()] == []
    assert [place for place in EXCEPTIONS.values() if not (REPOSITORY / place).is_file()] == []


def test_init_modules_hold_only_a_docstring_and_public_names() -> None:
    paths = [path for package in (*PACKAGES, OWN) for path in (REPOSITORY / package).rglob("__init__.py")]
    assert paths
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert text.startswith('"""'), f"{path} has no docstring"
        assert not re.search("^(def|class|async def) ", text, re.MULTILINE), f"{path} defines something"


def rooms() -> dict[str, set[str]]:
    """Return the imports of each room. A room is a folder of ``proxy/`` or another package."""
    graph = grimp.build_graph("kafka_quota_proxy")
    imports: dict[str, set[str]] = defaultdict(set)
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            ends = _room(importer), _room(imported)
            if all(ends) and ends[0] != ends[1]:
                imports[ends[0]].add(ends[1])
    return {**{room: set() for ends in imports.values() for room in ends}, **imports}


def _room(module: str) -> str:
    _, package, folder, *_ = [*module.split("."), "", ""]
    return f"{package}.{folder}" if package == "proxy" and folder else package


def test_import_graph_has_few_rooms_floors_and_arrows() -> None:
    graph = rooms()

    @cache
    def floor(room: str) -> int:
        return 1 + max(map(floor, graph[room]), default=0)  # a circle raises RecursionError

    assert len({path.parent for path in (REPOSITORY / "proxy").glob("*/*.py")}) <= 11
    assert {path.name for path in (REPOSITORY / "proxy").glob("*.py")} == {"__init__.py", "__main__.py"}
    assert len(graph) <= 20, sorted(graph)
    assert max(map(floor, graph)) <= 8, sorted(graph, key=floor)
    assert sum(map(len, graph.values())) <= 70, graph


def test_modules_and_functions_are_short() -> None:
    long = []
    for module in modules():
        source = (REPOSITORY / module).read_text(encoding="utf-8")
        long += [module] if source.count("\n") > 400 else []
        long += [
            f"{module}: {node.name}"
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 64
        ]
    assert long == []


def test_links_lead_from_the_installed_name_to_the_folders() -> None:
    package = REPOSITORY / "kafka_quota_proxy"

    assert {name: (package / name).resolve() for name in PACKAGES} == {name: REPOSITORY / name for name in PACKAGES}


def test_a_compiled_class_with_a_length_says_whether_it_is_true() -> None:
    """For ``X | None``, mypyc looks for ``__bool__`` only: it would take an object of length 0 for true."""
    build = runpy.run_path(str(REPOSITORY / "hatch_build.py"))
    compiled = [path for pattern in build["COMPILED"] for path in REPOSITORY.glob(pattern)]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in compiled if path.name not in build["INTERPRETED"]]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    optional = {ast.unparse(node.left).strip("'\"") for node in nodes if isinstance(node, ast.BinOp)}
    methods = {
        node.name: {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        for node in nodes
        if isinstance(node, ast.ClassDef)
    }

    assert "Line" in optional
    assert [name for name in optional if methods.get(name, set()) & {"__len__", "__bool__"} == {"__len__"}] == []
