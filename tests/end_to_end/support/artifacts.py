"""Downloads Kafka's jars with Maven, once per release, into a cache."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.end_to_end.support.processes import HarnessError, run

# The last release that delays responses for their throttle time (before KIP-219).
KAFKA_1_1: Final = "1.1.1"
KAFKA_2_8: Final = "2.8.2"
KAFKA_3_9: Final = "3.9.1"
KAFKA_4_3: Final = "4.3.1"
# The newest release.
KAFKA_4: Final = "4.4.0"
# The last release whose admin client does not know THROTTLING_QUOTA_EXCEEDED (KIP-599).
CLIENTS_2_6: Final = "2.6.3"

# The newest plugin that also runs on Maven 3.6, which Debian 11 and Ubuntu 22.04 ship.
_COPY_DEPENDENCIES: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
# Without a binding, slf4j drops the errors of a broker that fails to start. Kafka's jars contain slf4j 1.7.
_LOG_BINDING: Final = ("org.slf4j", "slf4j-simple", "1.7.36")
# Kafka 3.9 and 1.1 include these bindings, which log nothing without a configuration file.
_OTHER_BINDINGS: Final = "slf4j-reload4j,slf4j-log4j12"
# The connector's jars, without transitive dependencies: most of them are in Spark, and some are in no Maven repository.
# The token provider is for delegation tokens only.
_SPARK_CONNECTOR: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
# Delta Lake for this version of Spark.
_DELTA: Final = (("io.delta", "delta-spark_4.2_2.13", "4.4.0"), ("io.delta", "delta-storage", "4.4.0"))
# It exports the MBeans of the JVM that it is loaded into. Its jar contains all that it needs.
_JMX_EXPORTER: Final = ("io.prometheus.jmx", "jmx_prometheus_javaagent", "1.0.1")
_ALONE: Final = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_PATIENCE_S: Final = 300

_Artifact = tuple[str, str, str]  # group, name, version


def cache_directory() -> Path:
    """Return ``$KAFKA_QUOTA_PROXY_CACHE``, or else ``kafka-quota-proxy`` in the user's cache directory."""
    if chosen := os.environ.get("KAFKA_QUOTA_PROXY_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-quota-proxy"


def java() -> str:
    """Return the ``java`` command. Raises HarnessError if Java is not installed."""
    return _command("java", "Java 17 or later", "openjdk-17-jdk-headless")


def kafka_classpath(version: str) -> str:
    """Return the class path of a Kafka release, downloaded if necessary. Raises HarnessError if that fails."""
    scala = "2.12" if version == KAFKA_1_1 else "2.13"
    wanted = [("org.apache.kafka", f"kafka_{scala}", version), _LOG_BINDING]
    if version not in (KAFKA_1_1, KAFKA_2_8):  # their tools are in the other jars
        wanted.append(("org.apache.kafka", "kafka-tools", version))
    return _classpath(f"kafka-{version}", wanted)


def config_command(version: str) -> str:
    """Return the main class of ``kafka-configs.sh`` in a Kafka release."""
    return "org.apache.kafka.tools.ConfigCommand" if version == KAFKA_4 else "kafka.admin.ConfigCommand"


def clients_classpath(version: str) -> str:
    """Return the class path of a release's client library. Raises like ``kafka_classpath``."""
    return _classpath(f"kafka-clients-{version}", [("org.apache.kafka", "kafka-clients", version), _LOG_BINDING])


def spark_connector() -> list[Path]:
    """Return the jars of Spark's Kafka connector. Raises like ``kafka_classpath``."""
    return sorted(_libraries(f"spark-kafka-{_SPARK_CONNECTOR[0][2]}", _SPARK_CONNECTOR, alone=True).glob("*.jar"))


def delta_lake() -> list[Path]:
    """Return the jars of Delta Lake, the pipeline's table format. Raises like ``kafka_classpath``."""
    return sorted(_libraries(f"delta-{_DELTA[0][2]}", _DELTA, alone=True).glob("*.jar"))


def jmx_exporter() -> Path:
    """Return the jar of Prometheus' JMX exporter, a Java agent. Raises like ``kafka_classpath``."""
    (jar,) = _libraries(f"jmx-exporter-{_JMX_EXPORTER[-1]}", [_JMX_EXPORTER], alone=True).glob("*.jar")
    return jar


def _classpath(name: str, wanted: Sequence[_Artifact]) -> str:
    return f"{_libraries(name, wanted)}/*"


def _libraries(name: str, wanted: Sequence[_Artifact], *, alone: bool = False) -> Path:
    java()
    libraries = cache_directory() / name
    if not libraries.is_dir():
        _resolve(_pom(wanted, _ALONE if alone else ""), libraries)
    return libraries


def _resolve(project: str, libraries: Path) -> None:
    maven = _command("mvn", "Maven", "maven")
    libraries.parent.mkdir(parents=True, exist_ok=True)
    download = Path(tempfile.mkdtemp(prefix=f".{libraries.name}-", dir=libraries.parent))
    try:
        pom = download / "pom.xml"
        pom.write_text(project)
        settings = [f"-DoutputDirectory={download / 'jars'}", f"-DexcludeArtifactIds={_OTHER_BINDINGS}"]
        run([maven, "-q", "-B", "-f", pom, _COPY_DEPENDENCIES, *settings], timeout_s=_PATIENCE_S)
        try:
            (download / "jars").rename(libraries)
        except OSError:
            if not libraries.is_dir():  # otherwise another run has just put the same jars there
                raise
    finally:
        shutil.rmtree(download, ignore_errors=True)


def _pom(wanted: Sequence[_Artifact], more: str) -> str:
    dependencies = "\n".join(
        f"    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{number}</version>{more}</dependency>"
        for group, name, number in wanted
    )
    return f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>kafka-quota-proxy</groupId>
  <artifactId>test-bed</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def _command(name: str, product: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise HarnessError(
            f"{name} is not on the PATH: the end-to-end tests start a real Apache Kafka and need {product}. "
            f"On Debian or Ubuntu: apt-get install {package}"
        )
    return found
