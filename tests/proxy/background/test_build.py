"""Tests that the program says which build it is. The expectation comes from how Python has loaded the session."""

import os
import subprocess
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.metadata import version

import kafka_quota_proxy.proxy.session.session as session_module
from kafka_quota_proxy.proxy.background.build import implementation, is_compiled

LOADED_COMPILED = isinstance(session_module.__loader__, ExtensionFileLoader)


def test_build_is_what_python_has_loaded() -> None:
    assert is_compiled() == LOADED_COMPILED
    assert implementation() == ("compiled" if LOADED_COMPILED else "python")


def test_a_run_of_the_tests_that_expects_compiled_modules_has_them() -> None:
    assert is_compiled() == (os.environ.get("KQP_COMPILE", "0") != "0")


def test_version_option_says_the_version_and_the_build() -> None:
    command = [sys.executable, "-m", "kafka_quota_proxy.proxy", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    kind = "compiled" if LOADED_COMPILED else "pure Python"
    assert ended.stdout == f"kafka-quota-proxy {version('kafka-quota-proxy')}, {kind}\n"
