"""Describes the machine and the software of a run."""

import os
import platform
import re
import ssl
import subprocess
from importlib.metadata import version
from pathlib import Path

from bench.peers import KROXYLICIOUS_VERSION, envoy_program
from kafka_quota_proxy.proxy.runtime.build import implementation
from tests.end_to_end.support.artifacts import KAFKA_3_9


def name() -> str:
    """Return CPU, cores, memory and kernel, which identify a machine."""
    model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    processor = f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores"
    return f"{processor}, {memory_bytes / 2**30:.0f} GiB, {platform.system()} {platform.release()}"


def describe() -> dict[str, str]:
    """Return the load of the machine, and the versions of all software."""
    commit = _first_match(["git", "describe", "--always", "--dirty"], r"(\S+)")
    return {
        "load before": f"{os.getloadavg()[0]:.2f} (1-minute average; near 0, or the figures are not worth much)",
        "Python": f"{platform.python_implementation()} {platform.python_version()}, uvloop {version('uvloop')}",
        "Java": _first_match(["java", "-version"], r'version "([^"]+)"'),
        "Envoy": _first_match([envoy_program(), "--version"], r"/(\d+\.\d+\.\d+)/"),
        "Kroxylicious": KROXYLICIOUS_VERSION,
        "Apache Kafka": KAFKA_3_9,
        "OpenSSL of ours": ssl.OPENSSL_VERSION,
        "ours": f"{commit}, {implementation()}",
    }


def _first_match(command: list[str], pattern: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "not installed"
    found = re.search(pattern, done.stdout + done.stderr)
    return found[1] if found else "unknown"
