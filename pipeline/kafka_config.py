"""Reads a file of Kafka client properties, which ``--kafka-config`` names and which applies to ``kafka://`` addresses.

The file has the same format as for the option ``--command-config`` of Kafka's tools. Spark's Kafka client accepts all
properties. aiokafka, with which this program writes to topics, accepts those that ``client_keywords`` understands.
"""

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.tls_context import broker_side_context
from kafka_quota_proxy.pipeline.errors import InputError

# The settings that --usage and --to give, or that the program itself sets.
_OURS: Final = frozenset(
    {
        "bootstrap.servers", "group.id", "key.deserializer", "value.deserializer", "key.serializer", "value.serializer",
        "enable.auto.commit", "auto.offset.reset", "interceptor.classes", "transactional.id", "isolation.level",
    }
)  # fmt: skip
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# Matches an option of a JAAS line. The value is in quotes, or ends at a space or semicolon.
_JAAS: Final = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_TLS_UNDERSTOOD: Final = frozenset(
    {
        "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
        "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)  # fmt: skip
_SASL_UNDERSTOOD: Final = frozenset({"sasl.mechanism", "sasl.jaas.config"})


class Setting(NamedTuple):
    """The value of one property in a file of Kafka client properties, with the number of its line."""

    value: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """Holds the properties that a file sets for a Kafka client, keyed by Kafka's names for them.

    The values may be passwords, so ``repr`` hides them. ``file`` is the path of the file.
    """

    file: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict, repr=False)

    def spark_options(self) -> dict[str, str]:
        """Return the properties as options for Spark's Kafka source."""
        return {f"kafka.{key}": setting.value for key, setting in self.settings.items()}

    def client_keywords(self) -> dict[str, object]:
        """Return the properties for SASL and TLS as keyword arguments for aiokafka clients.

        Raises InputError if aiokafka does not support a property, or if a file that a property names cannot be used.
        """
        protocol = self._value("security.protocol", "PLAINTEXT").upper()
        keywords: dict[str, object] = {"security_protocol": protocol}
        if protocol.startswith("SASL_"):
            keywords |= self._login()
        if protocol.endswith("SSL"):
            keywords["ssl_context"] = self._tls()
        return keywords

    def _login(self) -> dict[str, object]:
        self._only(_SASL_UNDERSTOOD, "sasl.")
        mechanism = self._value("sasl.mechanism", "GSSAPI").upper()
        if mechanism not in _PASSWORD_MECHANISMS:
            raise self._fault(
                "sasl.mechanism", f"{mechanism} is not among those of --to: {', '.join(_PASSWORD_MECHANISMS)}"
            )
        options = _jaas_options(self._value("sasl.jaas.config", ""))
        for name in ("username", "password"):
            if name not in options:
                raise self._fault(
                    "sasl.jaas.config", f'has no {name}; write …LoginModule required username="…" password="…";'
                )
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": options["username"],
            "sasl_plain_password": options["password"],
        }

    def _tls(self) -> ssl.SSLContext:
        self._only(_TLS_UNDERSTOOD, "ssl.")
        for key in ("ssl.truststore", "ssl.keystore"):
            form = self._value(f"{key}.type", "JKS").upper()
            if f"{key}.location" in self.settings and form != "PEM":
                raise self._fault(
                    f"{key}.type",
                    f"is {form}; --to reads PEM: put the certificates into a PEM file and write {key}.type=PEM",
                )
        key, location = "ssl.keystore.location", self._value("ssl.keystore.location", "")
        try:
            self._load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
            key, location = "ssl.truststore.location", self._value("ssl.truststore.location", "")
            context = broker_side_context(location or None, self._load_own)
            if not self._value("ssl.endpoint.identification.algorithm", "https"):
                context.check_hostname = False
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or "cannot be used"
            raise self._fault(key, f"{location}: {reason}") from None
        return context

    def _load_own(self, context: ssl.SSLContext) -> None:
        if location := self._value("ssl.keystore.location", ""):
            # The password is never None, since OpenSSL would then ask for it on the terminal.
            context.load_cert_chain(location, password=self._value("ssl.key.password", ""))

    def _only(self, understood: frozenset[str], beginning: str) -> None:
        for key in self.settings:
            if key.startswith(beginning) and key not in understood:
                raise self._fault(key, f"is not understood by --to, which takes {', '.join(sorted(understood))}")

    def _value(self, key: str, default: str) -> str:
        return self.settings[key].value if key in self.settings else default

    def _fault(self, key: str, words: str) -> InputError:
        line = self.settings[key].line if key in self.settings else 1
        return InputError([f"{self.file}:{line}: {key}: {words}"])


def read_kafka_config(path: str) -> KafkaConfig:
    """Read a file of Kafka client properties.

    Raises InputError if the file is unreadable or faulty, or if it contains a property that the program sets itself.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise InputError([f"{path}: byte {error.object[error.start]:#04x} is not UTF-8"]) from error
    settings: dict[str, Setting] = {}
    faults = []
    for number, line in _logical_lines(text):
        key, value = _key_and_value(line)
        if key in _OURS:
            faults.append(f"{path}:{number}: {key}: is set by this program; remove it")
        elif key in settings:
            faults.append(f"{path}:{number}: {key}: is given in line {settings[key].line} already")
        elif key == "security.protocol" and value.upper() not in _PROTOCOLS:
            faults.append(f"{path}:{number}: {key}: {value!r} is none of {', '.join(_PROTOCOLS)}")
        settings.setdefault(key, Setting(value, number))
    if faults:
        raise InputError(faults)
    return KafkaConfig(file=path, settings=settings)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the logical lines of a properties file, as java.util.Properties joins them, with their line numbers.

    The line number of a logical line is that of its first physical line.
    """
    parts: list[str] = []
    first = 0
    # str.splitlines would also break lines at other characters.
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        stripped = line.lstrip(" \t\f")
        if not parts:
            first = number
            if not stripped or stripped[0] in "#!":
                continue
        goes_on = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
        parts.append(stripped[:-1] if goes_on else stripped)
        if not goes_on:
            yield first, "".join(parts)
            parts = []
    if parts:
        yield first, "".join(parts)


def _key_and_value(line: str) -> tuple[str, str]:
    # The key ends at the first =, : or space that has no backslash before it.
    found = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    key, value = (found[1], found[2]) if found else (line, "")
    return _unescaped(key), _unescaped(value)


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text, flags=re.DOTALL)


def _jaas_options(jaas: str) -> dict[str, str]:
    options = {}
    for found in _JAAS.finditer(jaas):
        name, in_double, in_single, bare = found.groups()
        quoted = in_double if in_double is not None else in_single
        options[name] = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    return options
