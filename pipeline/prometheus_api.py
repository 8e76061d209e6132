"""Asks a Prometheus server for the samples of Kafka's client metrics, in pieces that fit into memory.

A piece of time is as long as a bounded number of samples allows, and is halved if the server refuses it. Passwords and
tokens never appear in an error.
"""

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final, NamedTuple

from kafka_quota_proxy.pipeline.client_metrics import (
    NAME_PATTERN,
    Measured,
    instance_of,
    is_throttle_time,
    of_labels,
    other_labels,
)
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.scraped_brokers import ScrapedSeries

_TIMEOUT_S: Final = 120
_PAUSES_S: Final = (1.0, 2.0, 4.0)
_WORTH_A_RETRY: Final = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
# The server has found the query to be too much: 422 for too many samples, 503 for a timeout.
_TOO_MUCH: Final = frozenset({HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE})
_LONGEST_ERROR: Final = 500
# Prometheus refuses more than 11,000 steps.
_MOST_STEPS: Final = 10_000
_FIRST_STEPS: Final = 10
_SAMPLES_AT_ONCE: Final = 100_000


class ServerError(PipelineError):
    """A server that cannot be reached, or that refuses a query."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Answer(NamedTuple):
    """The client metrics of an answer, and how many other series it has."""

    series: list[ScrapedSeries]
    others: int


def answer_of(document: Any, name: str, own_names: Mapping[str, Measured]) -> Answer:  # noqa: ANN401  (JSON)
    """Return the content of an answer about the metric ``name``, which the functions of a query remove from its series.

    Raises KeyError, TypeError, ValueError or AttributeError if the document is no answer of ``query_range``.
    """
    series: list[ScrapedSeries] = []
    others = 0
    for one in document["data"]["result"]:
        labels = one["metric"]
        # Histograms have no "values".
        samples = [(round(float(at_s) * 1_000), float(text)) for at_s, text in one.get("values", ())]
        found = of_labels({"__name__": name, **labels}, own_names)
        if found is None:
            others += 1
        else:
            series.append(ScrapedSeries(instance_of(labels), other_labels(labels), found, samples))
    return Answer(series, others)


class Piece(NamedTuple):
    """The answers about a piece of the time range. ``until_ms`` is the end of the piece."""

    until_ms: int
    answers: list[Answer]


class Prometheus:
    """Asks one server. ``url`` may contain a user and a password. Raises UsageError if it is not http or https."""

    def __init__(self, url: str, *, token: str | None = None, pauses_s: Sequence[float] = _PAUSES_S) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("--url: is not the address of a server, such as http://prometheus:9090")
        place = parts.netloc.rpartition("@")[2]
        self.url = urllib.parse.urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._pauses_s = pauses_s
        self._authorization = f"Bearer {token}" if token else None
        if parts.username is not None:
            login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._authorization = f"Basic {base64.b64encode(login.encode()).decode('ascii')}"

    def metric_names(self, selector: str, from_ms: int, until_ms: int) -> list[str]:
        """Return the names of the client metrics that the server has in this time, as exporters name them."""
        matchers = ",".join(filter(None, (f'__name__=~"{NAME_PATTERN}"', selector)))
        return self._label_values("__name__", f"{{{matchers}}}", from_ms, until_ms)

    def pieces(
        self,
        names: Sequence[str],
        selector: str,
        own_names: dict[str, Measured],
        *,
        from_ms: int,
        until_ms: int,
        step_ms: int,
    ) -> Iterator[Piece]:
        """Yield the samples of these metrics, one for each step: the mean rate and the longest wait within the step."""
        steps, at_ms = _FIRST_STEPS, from_ms
        while at_ms + step_ms <= until_ms:
            steps = min(steps, (until_ms - at_ms) // step_ms)
            end_ms = at_ms + steps * step_ms
            try:
                answers = [self._range(name, selector, own_names, at_ms + step_ms, end_ms, step_ms) for name in names]
            except ServerError as error:
                if error.status not in _TOO_MUCH or steps == 1:
                    raise
                steps = max(1, steps // 2)
                continue
            yield Piece(end_ms, answers)
            at_ms = end_ms
            most = max(len(answer.series) + answer.others for answer in answers)
            # The next piece may be twice as long, since there may be more clients in it.
            steps = max(1, min(2 * steps, _MOST_STEPS, _SAMPLES_AT_ONCE // max(1, most)))

    def _range(
        self, name: str, selector: str, own_names: dict[str, Measured], from_ms: int, until_ms: int, step_ms: int
    ) -> Answer:
        # Throttle times are NaN without throttled requests, which max_over_time leaves out and avg_over_time does not.
        function = "max_over_time" if is_throttle_time(name, own_names) else "avg_over_time"
        query = f"{function}({name}{{{selector}}}[{step_ms}ms])"
        times = {"start": _seconds(from_ms), "end": _seconds(until_ms), "step": _seconds(step_ms)}
        document = self._get("query_range", {"query": query, **times})
        try:
            return answer_of(document, name, own_names)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ServerError(f"{self.url}/api/v1/query_range: the answer is none of Prometheus") from error

    def _label_values(self, label: str, match: str, from_ms: int, until_ms: int) -> list[str]:
        times = {"start": _seconds(from_ms), "end": _seconds(until_ms)}
        return sorted(self._get(f"label/{label}/values", {"match[]": match, **times})["data"])

    def _get(self, path: str, parameters: dict[str, str]) -> Any:  # noqa: ANN401  (JSON)
        for pause_s in self._pauses_s:
            try:
                return self._once(path, parameters)
            except ServerError as error:
                if error.status is not None and error.status not in _WORTH_A_RETRY:
                    raise
                time.sleep(pause_s)
        return self._once(path, parameters)

    def _once(self, path: str, parameters: dict[str, str]) -> Any:  # noqa: ANN401  (JSON)
        shown = f"{self.url}/api/v1/{path}"
        request = urllib.request.Request(f"{shown}?{urllib.parse.urlencode(parameters)}")  # noqa: S310
        if self._authorization is not None:
            # It is not sent to where a redirect leads.
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310  (http or https)
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ServerError(f"{shown}: {error.code} {error.reason}: {_text_of(error)}", error.code) from error
        except ValueError as error:
            raise ServerError(f"{shown}: the answer is not JSON; is this Prometheus?", HTTPStatus.OK) from error
        except (OSError, HTTPException) as error:
            raise ServerError(f"{shown}: {getattr(error, 'reason', None) or error}") from error


def _text_of(error: urllib.error.HTTPError) -> str:
    """Return the server's own error, or the beginning of its answer."""
    body = error.read(64 << 10).decode("utf-8", "replace")
    try:
        text = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        text = body
    return " ".join(str(text).split())[:_LONGEST_ERROR] or "no text"


def _seconds(time_ms: int) -> str:
    return f"{time_ms / 1_000:.3f}"
