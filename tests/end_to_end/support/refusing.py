"""The proxy, but that its fair call queue says about every other time that it is full: ``refusing.py run FILE``.

Only that is made up: which answer a client gets, and how its connection goes on, is the product's own. Which requests
of a client-id are refused depends on nothing but their order, so a test does not depend on how busy the machine is; and
several in a row are refused as well. It has no period: one as long as a client's requests in flight would refuse the
same of them forever.

Of each that is answered a line is printed, ``refused CLIENT_ID API_KEY``.
"""

from __future__ import annotations

import sys
from random import Random

from kafka_quota_proxy.protocol.field_reader import read_whole_head
from kafka_quota_proxy.protocol.refusal_responses import refusal_response
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Answer, Dispatcher, Ticket
from kafka_quota_proxy.proxy.session import broker_turn


def refuse_at_times() -> None:
    """Put that in place."""
    ask = Dispatcher.ask
    chances: dict[str, Random] = {}

    def ask_full(
        self: Dispatcher, ticket: Ticket, now_us: int, *, is_slow: bool = False, may_refuse: bool = True
    ) -> Answer:
        if may_refuse and not ticket.is_control:
            chance = chances.setdefault(ticket.identity, Random(ticket.identity))  # noqa: S311 - the same in each run
            if chance.random() < 0.5:
                return Answer.KEEP_ALIVE
        return ask(self, ticket, now_us, is_slow=is_slow, may_refuse=may_refuse)

    def refuse_and_tell(frame: bytes, *, throttle_time_ms: int) -> bytes | None:
        answer = refusal_response(frame, throttle_time_ms=throttle_time_ms)
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
