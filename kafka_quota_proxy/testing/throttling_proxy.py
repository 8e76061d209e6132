"""Runs a proxy for a test, in front of an embedded broker or of any Kafka."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kafka_quota_proxy.proxy.runtime.build import install_line
from kafka_quota_proxy.proxy.runtime.ports import adjacent_ports
from kafka_quota_proxy.proxy.runtime.processes import Child, ChildError, running
from kafka_quota_proxy.testing.control import Control, ObservedResponses, SeenClient
from kafka_quota_proxy.testing.kafka_check import why_not_kafka

Rule = Mapping[str, Any]

_BROKER: Final = "kafka_quota_proxy.proxy.cli.demo.embedded_broker"
_PROXY: Final = "kafka_quota_proxy.proxy"
_BROKER_READY: Final = re.compile(r"ready on ")
_PROXY_READY: Final = re.compile(r"listening on \S+ \(test\) ")
# A cluster in front of which the proxy runs may have as many.
_MOST_BROKERS: Final = 32
# Another process may take a port between its choice and its use.
_TRIES: Final = 3


class StartError(Exception):
    """Raised if the broker or the proxy does not start. The message has the end of its log."""


class ThrottlingProxy:
    """A proxy that throttles Kafka clients on demand. It runs during a ``with`` block.

    Args:
        bootstrap_servers: The Kafka in front of which it runs, as ``HOST:PORT`` with commas between several. If it is
            None, an embedded broker is started: librdkafka's mock cluster, which creates each topic that is asked for.
        quotas: The rules in force at the start, as in the section ``quotas`` of the configuration file.

    Attributes:
        bootstrap_servers: The address for the clients under test.
        admin: The ``HOST:PORT`` of the admin port, for tests in other languages.
    """

    def __init__(self, bootstrap_servers: str | None = None, quotas: Sequence[Rule] = ()) -> None:
        self.bootstrap_servers = ""
        self.admin = ""
        self._upstream = bootstrap_servers
        self._first_rules = [dict(rule) for rule in quotas]
        self._rules: dict[tuple[object, object], dict[str, Any]] = {}
        self._stack = ExitStack()
        self._control: Control | None = None

    def __enter__(self) -> Self:
        for tries_left in reversed(range(_TRIES)):
            try:
                self._start()
                break
            except StartError as error:
                self._stack.close()
                if not tries_left or "in use" not in str(error):
                    raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._control = None

    def next(
        self,
        count: int = 1,
        *,
        throttle_time_ms: int,
        api: str = "*",
        user: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
    ) -> int:
        """Throttle the next ``count`` responses that match by exactly this time. Return the id of the order.

        Each of these responses tells the time, and the client is muted for it.

        Args:
            count: How many responses.
            throttle_time_ms: The throttle time, in milliseconds.
            api: The API, such as ``Produce`` or ``Fetch``, or ``*`` for any.
            user: The user, or None for any.
            client_id: The client-id, or None for any.
            topic: The topic, or None for any.

        Raises:
            ControlError: If the proxy refuses the order.
        """
        wanted = {"user": user, "client_id": client_id, "topic": topic}
        order = {"api": api, "count": count, "throttle_time_ms": throttle_time_ms}
        return self._running.order(order | {key: value for key, value in wanted.items() if value is not None})

    def limit(
        self, *, user: str | None = None, client_id: str | None = None, shaping: str | None = None, **limits: object
    ) -> None:
        """Give a user, a client-id, or both together these limits, in place of earlier ones.

        For example ``limit(client_id="app", producer_byte_rate=100_000, consumer_byte_rate="1MiB", shaping="paced")``.
        The name ``<default>`` stands for all that have no rule of their own. Without ``limits`` the rule is removed.

        Raises:
            ControlError: If the rules are not valid.
        """
        named = {"user": user, "client-id": client_id, "shaping": shaping}
        rules = dict(self._rules)
        rules.pop((user, client_id), None)
        if limits:
            rules[user, client_id] = {key: value for key, value in named.items() if value is not None} | limits
        self._running.replace_quotas(list(rules.values()))
        self._rules = rules

    def observed(self, client_id: str | None = None) -> ObservedResponses:
        """Return the throttled responses to one client-id, or to all, since the last ``reset``."""
        return self._running.observed(client_id)

    def clients(self) -> tuple[SeenClient, ...]:
        """Return the clients that have got responses since the last ``reset``, at most 100."""
        return self._running.clients()

    def reset(self) -> None:
        """Remove all orders and limits, forget what was observed, and restore the rules of the start."""
        self._running.reset()
        self._use_first_rules()

    @property
    def _running(self) -> Control:
        if self._control is None:
            raise RuntimeError("the proxy does not run: use it within its with block")
        return self._control

    def _use_first_rules(self) -> None:
        self._rules = {(rule.get("user"), rule.get("client-id")): rule for rule in self._first_rules}

    def _start(self) -> None:
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-throttle-")))
        admin, first, *addresses = (f"127.0.0.1:{port}" for port in adjacent_ports(2 + _MOST_BROKERS))
        listener: dict[str, Any]
        if self._upstream is not None and (why := why_not_kafka(self._upstream)):
            raise StartError(why)
        if self._upstream is None:
            if find_spec("confluent_kafka") is None:
                raise StartError(f"the embedded broker needs an extra: {install_line('testing')}")
            listener = {"name": "test", "bind": first, "upstream": addresses[0]}
        else:
            ports = f"{_port(addresses[0])}-{_port(addresses[-1])}"
            listener = {"name": "test", "bind": first, "bootstrap_servers": self._upstream, "broker_ports": ports}
        file = directory / "proxy.yaml"
        # JSON is valid YAML.
        file.write_text(
            json.dumps(
                {
                    "listeners": [listener],
                    "quotas": self._first_rules,
                    "admin": {"bind": admin},
                    "testing": True,
                    "drain_timeout": "100ms",
                }
            )
        )
        started: list[tuple[Child, re.Pattern[str]]] = []
        if self._upstream is None:
            words = ["-m", _BROKER, "--advertise", first, "--port", _port(addresses[0])]
            broker = running("the embedded broker", words, log=directory / "broker.log")
            started.append((self._stack.enter_context(broker), _BROKER_READY))
        proxy = running("the proxy", ["-m", _PROXY, "run", str(file)], log=directory / "proxy.log")
        started.append((self._stack.enter_context(proxy), _PROXY_READY))
        try:
            for child, ready in started:  # they start at the same time
                child.wait_for_line(ready)
        except ChildError as error:
            raise StartError(str(error)) from None
        self.bootstrap_servers, self.admin = first, admin
        self._control = Control(self.admin)
        self._use_first_rules()


def _port(address: str) -> str:
    return address.rpartition(":")[2]
