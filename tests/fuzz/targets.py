"""The fuzz targets. Any bytes must give a response or one closed connection, in bounded time and memory.

Each target reads its decisions from the fuzzer's bytes. It catches only ``ProtocolError``, so any other exception is a
finding. It returns a number of frames:

* Dialogues, replicas and garbage count the whole frames that passed a session, plus one for an error that closed it.
* The other targets count the frames, tokens, headers or certificates that were read.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tests.fuzz import client_quotas, credentials, dialogue, garbage, readers, replicas, topic_mutations
from tests.fuzz.source import Source


class Target(NamedTuple):
    """A fuzz target.

    Attributes:
        run: Takes the fuzzer's bytes, and returns the number of frames. It raises an error if a check fails.
        share: The target's share of the frames of a long run, in percent.
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
    "garbage": Target(partial(_readers, garbage.garbage), 3),
    "requests": Target(partial(_readers, readers.requests), 9),
    "responses": Target(partial(_readers, readers.responses), 8),
    "streams": Target(partial(_readers, readers.streams), 6),
    "tokens": Target(partial(_readers, credentials.tokens), 6),
    "proxy_headers": Target(partial(_readers, credentials.proxy_headers), 4),
    "certificates": Target(partial(_readers, credentials.certificates), 4),
}
