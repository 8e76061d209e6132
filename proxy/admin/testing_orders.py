"""Reads orders of tests from JSON, and writes orders and observed responses as JSON."""

from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.value_readers import topic_name
from kafka_quota_proxy.protocol.api import API_NAMES, ApiKey
from kafka_quota_proxy.protocol.error_codes import ERROR_CODES
from kafka_quota_proxy.proxy.admin.requests import bad_request
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.session.testing.effects import Effects
from kafka_quota_proxy.proxy.session.testing.observed import ThrottledResponse
from kafka_quota_proxy.proxy.session.testing.orders import (
    APIS_WITH_ERRORS,
    MAX_COUNT,
    MAX_TIME_MS,
    REFUSED_APIS,
    Order,
    Wanted,
)

_ANY: Final = "*"
_KEYS_BY_NAME: Final = {name.lower(): key for key, name in API_NAMES.items()}
_TEXTS: Final = ("user", "client_id", "topic")
_EFFECTS: Final = ("throttle_time_ms", "delay_ms", "error", "empty", "close")
_KEYS: Final = ("api", "count", *_EFFECTS, *_TEXTS)
_ERROR_NAMES: Final = {code: name for name, code in ERROR_CODES.items()}
_FETCH: Final = int(ApiKey.FETCH)


def read_order(given: object) -> tuple[Wanted, Effects, int]:
    """Read an order from parsed JSON. Return the responses that it is for, its effects on them, and their number.

    Raises:
        RefusedError: If it is not such an order.
    """
    if not isinstance(given, dict):
        raise bad_request('send an object such as {"api": "Produce", "throttle_time_ms": 300, "count": 5}')
    for key in given:
        if key not in _KEYS:
            raise bad_request(f"{str(key)[:40]!r} is not a key; the keys are {', '.join(_KEYS)}")
    api_key, topic = _api_key(given.get("api", _ANY)), read_topic(given)
    wanted = Wanted(api_key, user=_text(given, "user"), client_id=_text(given, "client_id"), topic=topic)
    return wanted, _effects(given, wanted.api_key), read_number({"count": 1, **given}, "count", 1, MAX_COUNT)


def written_order(order: Order) -> dict[str, object]:
    """Return an order as JSON writes it, with the number of responses that are left."""
    wanted = order.wanted
    api = _ANY if wanted.api_key is None else API_NAMES[wanted.api_key]
    named = {key: getattr(wanted, key) for key in _TEXTS if getattr(wanted, key) is not None}
    return {"id": order.id, "api": api, **_written_effects(order.effects), "left": order.left, **named}


def written_response(response: ThrottledResponse, node_ids: Mapping[BrokerQuotas, int | None]) -> dict[str, object]:
    """Return an observed response as JSON writes it. ``node_ids`` has those of brokers, as far as they are known."""
    effects = {} if response.effects is None else _written_effects(response.effects)
    return {
        "time_ms": response.time_ms,
        "api": API_NAMES.get(response.api_key, str(response.api_key)),
        "version": response.api_version,
        "user": response.user,
        "client_id": response.client_id,
        "broker": None if response.quotas is None else node_ids.get(response.quotas),
        "bytes": response.size_bytes,
        "reason": response.reason,
        **effects,
        "throttle_time_ms": response.throttle_time_ms,
    }


def written_client(client: tuple[str, str], responses: Mapping[int, int]) -> dict[str, object]:
    """Return a client's names, and how many responses of each API it has got, as JSON writes them."""
    user, client_id = client
    counts = {API_NAMES.get(api_key, str(api_key)): count for api_key, count in sorted(responses.items())}
    return {"user": user, "client_id": client_id, "responses": counts}


def _effects(given: Mapping[str, object], api_key: int | None) -> Effects:
    if not any(key in given for key in _EFFECTS):
        raise bad_request(f"the order has no effect; give at least one of {', '.join(_EFFECTS)}")
    throttle_time_ms = read_number(given, "throttle_time_ms", 0, MAX_TIME_MS) if "throttle_time_ms" in given else None
    delay_ms = read_number({"delay_ms": 0, **given}, "delay_ms", 0, MAX_TIME_MS)
    is_empty, closes = _flag(given, "empty"), _flag(given, "close")
    name = _text(given, "error")
    if is_empty and api_key != _FETCH:
        raise bad_request('empty is for the records of "api": "Fetch" only')
    if name is None:
        return Effects(throttle_time_ms, delay_ms, is_empty=is_empty, closes=closes)
    code = ERROR_CODES.get(name)
    if code is None:
        raise bad_request(f"error must be the name of a Kafka error, such as NOT_LEADER_OR_FOLLOWER, not {name[:40]!r}")
    if api_key not in APIS_WITH_ERRORS:
        apis = ", ".join(sorted(API_NAMES[key] for key in APIS_WITH_ERRORS))
        raise bad_request(f"an error needs one of these as api: {apis}")
    if delay_ms and api_key in REFUSED_APIS:
        raise bad_request("delay_ms and error together are for Fetch only: other requests do not reach the broker")
    return Effects(throttle_time_ms, delay_ms, code, is_empty, closes)


def _written_effects(effects: Effects) -> dict[str, object]:
    error = None if effects.error_code is None else _ERROR_NAMES[effects.error_code]
    written = {
        "throttle_time_ms": effects.throttle_time_ms,
        "delay_ms": effects.delay_ms or None,
        "error": error,
        "empty": effects.is_empty or None,
        "close": effects.closes or None,
    }
    return {key: value for key, value in written.items() if value is not None}


def read_number(given: Mapping[str, object], key: str, least: int, most: int) -> int:
    """Return the whole number under a key. Raises ``RefusedError`` if it is none, or not within the bounds."""
    value = given[key]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise bad_request(f"{key} must be a whole number from {least} to {most}")
    return value


def read_topic(given: Mapping[str, object]) -> str | None:
    """Return the name of the topic in an order, or None. Raises ``RefusedError`` if Kafka allows no such name."""
    topic = _text(given, "topic")
    try:
        return None if topic is None else topic_name(topic)
    except ValueError as error:
        raise bad_request(f"topic: {error}") from None


def _flag(given: Mapping[str, object], key: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise bad_request(f"{key} must be true or false")
    return value


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
