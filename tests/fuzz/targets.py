"""Any bytes give an answer or one closed connection, in bounded time and memory: what is fuzzed, and how much of it.

Each target takes the fuzzer's bytes, reads its decisions from them, and raises whatever is not a ``ProtocolError``. It
returns how many frames it gave to what it tests:

* a dialogue, replicas, or garbage: the requests and answers that came out of a session on their other side, whole, and
  one for each error that closed it;
* readers, mutations, client quotas: the frames, tokens, headers or certificates that were read.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tests.fuzz import client_quotas, dialogue, readers, replicas, topic_mutations
from tests.fuzz.source import Source


class Target(NamedTuple):
    """What takes a fuzzer's bytes.

    Attributes:
        run: Takes them; returns the number of frames. Raises what must not arise.
        share: How many of a hundred frames of a long run are this target's.
    """

    run: Callable[[bytes], int]
    share: int


def _dialogue(kind: int, data: bytes) -> int:
    return dialogue.Twins(Source(data), kind).play()


def _readers(read: Callable[[Source], int], data: bytes) -> int:
    return read(Source(data))


TARGETS: Final[dict[str, Target]] = {
    "dialogue_plain": Target(partial(_dialogue, dialogue.PLAIN), 10),
    "dialogue_inter_broker": Target(partial(_dialogue, dialogue.INTER_BROKER), 8),
    "dialogue_rewriting": Target(partial(_dialogue, dialogue.REWRITING), 12),
    "dialogue_login": Target(partial(_dialogue, dialogue.LOGIN), 10),
    "replicas": Target(partial(_readers, replicas.play), 10),
    "mutations": Target(partial(_readers, topic_mutations.play), 6),
    "client_quotas": Target(partial(_readers, client_quotas.play), 4),
    "garbage": Target(partial(_readers, readers.garbage), 3),
    "requests": Target(partial(_readers, readers.requests), 9),
    "responses": Target(partial(_readers, readers.responses), 8),
    "streams": Target(partial(_readers, readers.streams), 6),
    "tokens": Target(partial(_readers, readers.tokens), 6),
    "proxy_headers": Target(partial(_readers, readers.proxy_headers), 4),
    "certificates": Target(partial(_readers, readers.certificates), 4),
}
