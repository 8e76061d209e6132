"""Reads orders of tests from JSON, and writes observed responses and clients as JSON."""

from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.value_readers import topic_name
from kafka_quota_proxy.protocol.api import API_NAMES
from kafka_quota_proxy.proxy.admin.requests import bad_request
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.session.testing.observed import ThrottledResponse
from kafka_quota_proxy.proxy.session.testing.orders import MAX_COUNT, MAX_TIME_MS, Wanted

_ANY: Final = "*"
_KEYS_BY_NAME: Final = {name.lower(): key for key, name in API_NAMES.items()}
_TEXTS: Final = ("user", "client_id", "topic")
_KEYS: Final = ("api", "count", "throttle_time_ms", *_TEXTS)


def read_order(given: object) -> tuple[Wanted, int, int]:
    """Read an order from parsed JSON. Return the responses that it is for, their throttle time in ms, and their number.

    Raises:
        RefusedError: If it is not such an order.
    """
    if not isinstance(given, dict):
        raise bad_request('send an object such as {"api": "Produce", "throttle_time_ms": 300, "count": 5}')
    for key in given:
        if key not in _KEYS:
            raise bad_request(f"{str(key)[:40]!r} is not a key; the keys are {', '.join(_KEYS)}")
    api_key, topic = _api_key(given.get("api", _ANY)), _topic(given)
    wanted = Wanted(api_key, user=_text(given, "user"), client_id=_text(given, "client_id"), topic=topic)
    throttle_time_ms = _number(given, "throttle_time_ms", 0, MAX_TIME_MS)
    return wanted, throttle_time_ms, _number({"count": 1, **given}, "count", 1, MAX_COUNT)


def written_response(response: ThrottledResponse, node_ids: Mapping[BrokerQuotas, int | None]) -> dict[str, object]:
    """Return an observed response as JSON writes it. ``node_ids`` has those of brokers, as far as they are known."""
    return {
        "time_ms": response.time_ms,
        "api": API_NAMES.get(response.api_key, str(response.api_key)),
        "version": response.api_version,
        "user": response.user,
        "client_id": response.client_id,
        "broker": None if response.quotas is None else node_ids.get(response.quotas),
        "bytes": response.size_bytes,
        "reason": response.reason,
        "throttle_time_ms": response.throttle_time_ms,
    }


def written_client(client: tuple[str, str], responses: Mapping[int, int]) -> dict[str, object]:
    """Return a client's names, and how many responses of each API it has got, as JSON writes them."""
    user, client_id = client
    counts = {API_NAMES.get(api_key, str(api_key)): count for api_key, count in sorted(responses.items())}
    return {"user": user, "client_id": client_id, "responses": counts}


def _number(given: Mapping[str, object], key: str, least: int, most: int) -> int:
    value = given.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise bad_request(f"{key} must be a whole number from {least} to {most}")
    return value


def _topic(given: Mapping[str, object]) -> str | None:
    topic = _text(given, "topic")
    try:
        return None if topic is None else topic_name(topic)
    except ValueError as error:
        raise bad_request(f"topic: {error}") from None


def _text(given: Mapping[str, object], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"{key} must be a text")
    return value


def _api_key(name: object) -> int | None:
    if name == _ANY:
        return None
    key = _KEYS_BY_NAME.get(name.lower()) if isinstance(name, str) else None
    if key is None:
        raise bad_request(f"api must be * or the name of an API, such as Produce or Fetch, not {str(name)[:40]!r}")
    return key
