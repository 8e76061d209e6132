"""A real Kafka with TLS listeners in addition to plaintext listeners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.end_to_end.support.kafka import Endpoint, Kafka
from tests.end_to_end.support.processes import free_port
from tests.support.certificates import Authority


class TlsKafka(Kafka):
    """A cluster with additional TLS listeners.

    ``directory`` is for the brokers' certificate, which ``authority`` signs for 127.0.0.1. ``tls`` has the settings of
    each TLS listener, such as ``ssl.client.auth``. Of these listeners, those in ``unproxied`` advertise themselves, and
    those in ``sasl`` require a login. The other arguments are those of ``Kafka``.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        authority: Authority,
        *,
        tls: Mapping[str, Mapping[str, str]],
        unproxied: Sequence[str] = (),
        sasl: Sequence[str] = (),
        nodes: int = 1,
        config: Mapping[str, str | int] | None = None,
    ) -> None:
        issued = authority.issue("broker", hosts=["127.0.0.1"])
        keystore, truststore = directory / "broker.keystore.pem", directory / "broker.truststore.pem"
        keystore.write_bytes(issued.key + issued.certificate)
        truststore.write_bytes(authority.pem)
        stores = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(truststore),
        }
        super().__init__(version, nodes=nodes, config={**stores, **(config or {})})
        self._tls = tls
        self._self_advertised = frozenset(unproxied)
        self._sasl = frozenset(sasl)
        self.tls: dict[tuple[int, str], Endpoint] = {}

    def tls_endpoint(self, name: str, node_id: int = 1) -> Endpoint:
        """Return a TLS listener of a broker. If it is proxied, it advertises an unused port."""
        return self.tls[node_id, name]

    def _properties(self, *args: Any) -> dict[str, str | int]:  # noqa: ANN401 - whatever the base class has
        own = super()._properties(*args)
        node_id = int(own["node.id"])
        for name, settings in self._tls.items():
            port = free_port()
            advertised = port if name in self._self_advertised else free_port()
            endpoint = self.tls[node_id, name] = Endpoint(port=port, advertised_port=advertised)
            own["listeners"] = f"{own['listeners']},{name}://{endpoint.address}"
            own["advertised.listeners"] = f"{own['advertised.listeners']},{name}://{endpoint.advertised_address}"
            protocol = "SASL_SSL" if name in self._sasl else "SSL"
            own["listener.security.protocol.map"] = f"{own['listener.security.protocol.map']},{name}:{protocol}"
            for key, value in settings.items():
                # In a properties file, a backslash must be doubled.
                own[f"listener.name.{name.lower()}.{key}"] = value.replace("\\", "\\\\")
        return own
