"""A file of Kafka client properties is read as Kafka's tools read it."""

from pathlib import Path

import pytest

from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.kafka_source import kafka_options


def options_of(tmp_path: Path, text: bytes) -> dict[str, str]:
    """Return the options that are read from a properties file with this text."""
    path = tmp_path / "client.properties"
    path.write_bytes(text)
    return kafka_options(str(path))


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    text = (
        "# a comment\n! another\n\n"
        "security.protocol = SSL\r\n"
        "  client.id : a=b:c \n"
        "ssl.key.password bü\\u00fcro\\\\\n"
        "sasl.jaas.config=one \\\n    two \\\n# three;\n"
        "metadata.max\\ age=1\n"
        "alone"
    )

    assert options_of(tmp_path, text.encode()) == {
        "kafka.security.protocol": "SSL",
        "kafka.client.id": "a=b:c ",
        "kafka.ssl.key.password": "büüro\\",
        "kafka.sasl.jaas.config": "one two # three;",
        "kafka.metadata.max age": "1",
        "kafka.alone": "",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"bootstrap.servers=a:1\n", "bootstrap.servers: is set by this program; remove it"),
        (b"a=\xff\n", "byte 0xff is not UTF-8"),
        (b"ssl.key.password=hush\\u00zz\n", "Invalid \\u escape sequence"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_its_secrets(tmp_path: Path, text: bytes, said: str) -> None:
    with pytest.raises(InputError) as fault:
        options_of(tmp_path, text)

    assert str(fault.value).startswith(f"{tmp_path}/client.properties: {said}")
    assert "hush" not in str(fault.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        kafka_options(str(tmp_path / "absent"))
