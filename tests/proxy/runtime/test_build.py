"""Tests that the program says which build it is. The expectation comes from how Python has loaded the session."""

import ast
import os
import re
import subprocess
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.metadata import distribution, version
from pathlib import Path

import kafka_quota_proxy.proxy.session.session as session_module
from kafka_quota_proxy.proxy.runtime.build import implementation, is_compiled

ROOT = Path(__file__).parents[3]
LOADED_COMPILED = isinstance(session_module.__loader__, ExtensionFileLoader)


def test_a_run_of_the_tests_that_expects_compiled_modules_has_them() -> None:
    assert is_compiled() == LOADED_COMPILED
    assert implementation() == ("compiled" if LOADED_COMPILED else "python")
    assert is_compiled() == (os.environ.get("KQP_COMPILE", "0") != "0")


def test_wheel_is_marked_for_this_python_and_system_only_if_it_is_compiled() -> None:
    wheel = distribution("kafka-quota-proxy").read_text("WHEEL")
    assert wheel is not None
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{python}-{python}-linux_" if LOADED_COMPILED else "py3-none-any"
    assert f"Tag: {tag}" in wheel
    assert f"Root-Is-Purelib: {'false' if LOADED_COMPILED else 'true'}" in wheel


def test_version_option_says_the_version_and_the_build() -> None:
    command = [sys.executable, "-m", "kafka_quota_proxy.proxy", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    how = " (KQP_COMPILE=1 and a C compiler at its installation compile it)"
    kind = "compiled" if LOADED_COMPILED else f"pure Python{how}"
    assert ended.stdout == f"kafka-quota-proxy {version('kafka-quota-proxy')}, {kind}\n"


def test_the_page_about_performance_says_which_installation_is_which_build() -> None:
    page = (ROOT / "docs/reference/performance.md").read_text()
    builds = dict(re.findall(r"^\| (.+) \| \**(compiled|pure Python)\** \|$", page, re.MULTILINE))

    assert [kind for how, kind in builds.items() if "KQP_COMPILE=1" in how] == ["compiled"]
    assert builds["`pip install .` in a checkout, as in [Run it in production](../how-to/run-in-production.md)"] == (
        "pure Python"
    )
    image = next(kind for how, kind in builds.items() if "image" in how)
    assert (image == "compiled") == ("KQP_COMPILE=1" in (ROOT / "Dockerfile").read_text())


def test_no_property_has_another_decorator() -> None:
    """Mypyc takes the getter of such a property for a method, and says nothing."""
    seen = 0
    for path in (path for folder in ("protocol", "proxy") for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "@property" in text else ():
            if isinstance(node, ast.FunctionDef):
                names = [ast.unparse(decorator) for decorator in node.decorator_list]
                assert names == ["property"] or "property" not in names, f"{path}:{node.lineno}: {node.name}"
                seen += names == ["property"]
    assert seen
