"""The proxy with a fair call queue that refuses about every second request: ``refusing.py run FILE``.

Only the decision to refuse is replaced. It depends on the client-id and the order of the client's requests, so it is
the same on a busy machine. It is random, because with a regular pattern the same request could be refused for ever.

Each refusal prints a line ``refused CLIENT_ID API_KEY``.
"""

from __future__ import annotations

import sys
from random import Random

from kafka_quota_proxy.protocol.field_reader import read_whole_head
from kafka_quota_proxy.protocol.refusal_responses import refusal_response
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher, Ticket, Turn
from kafka_quota_proxy.proxy.session import broker_turn


def refuse_at_times() -> None:
    """Replace the decision of the queue, and print each refusal."""
    ask = Dispatcher.ask
    chances: dict[str, Random] = {}

    def ask_full(
        self: Dispatcher, ticket: Ticket, now_us: int, *, is_slow: bool = False, may_refuse: bool = True
    ) -> Turn:
        if may_refuse and not ticket.is_control:
            chance = chances.setdefault(ticket.identity, Random(ticket.identity))  # noqa: S311 - the same in each run
            if chance.random() < 0.5:
                return Turn.REFUSED
        return ask(self, ticket, now_us, is_slow=is_slow, may_refuse=may_refuse)

    def refuse_and_tell(frame: bytes, *, throttle_time_ms: int, error_code: int | None = None) -> bytes | None:
        answer = refusal_response(frame, throttle_time_ms=throttle_time_ms, error_code=error_code)
        if answer is not None:
            head = read_whole_head(frame)
            sys.stdout.write(f"refused {head.client_id.decode()} {head.api_key}\n")
            sys.stdout.flush()
        return answer

    Dispatcher.ask = ask_full  # type: ignore[method-assign]
    broker_turn.refusal_response = refuse_and_tell  # type: ignore[attr-defined]


if __name__ == "__main__":
    refuse_at_times()
    sys.exit(main())
