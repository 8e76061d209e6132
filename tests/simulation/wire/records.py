"""Record batches: the header of Kafka's format (magic 2), then a payload that nobody but this module can read.

The payload is a token, by which a batch is known again wherever it arrives, and a filler up to the size that was asked
for. The CRC is zlib's, over the header's fields behind it and the token: neither the proxy nor the simulated brokers
ask for Kafka's CRC-32C, which would cost more than all else here.
"""

from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from tests.simulation.wire.common import WireError, pack_i32

# base_offset, batch_length, partition_leader_epoch, magic, crc
_FRONT: Final = Struct(">qiibI")
# attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence,
# record_count; then, in the payload, the length of the token
_REST: Final = Struct(">hiqqqhiih")
_OFFSET_AND_LENGTH: Final = Struct(">qi")
FRONT_BYTES: Final = 12  # offset and length
_TOKEN_AT: Final = _FRONT.size + _REST.size
_BASE_OFFSET: Final = Struct(">q")
_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10
# A period that is prime to all sizes of buffers, so that bytes out of order are seen.
_FILLER: Final = bytes(range(251)) * (2 * 1024 * 1024 // 251 + 1)


class Batch(NamedTuple):
    """A record batch. ``size`` is that of the whole batch in bytes."""

    token: str
    size: int
    record_count: int = 1
    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    base_offset: int = 0
    leader_epoch: int = -1
    timestamp_ms: int = 0
    is_transactional: bool = False


def write_batch(batch: Batch) -> bytes:
    """Return the bytes of a batch. A token that needs more than ``size`` makes it larger."""
    token = batch.token.encode()
    rest = _REST.pack(
        _TRANSACTIONAL if batch.is_transactional else 0,
        batch.record_count - 1,
        batch.timestamp_ms,
        batch.timestamp_ms,
        batch.producer_id,
        batch.epoch,
        batch.base_sequence,
        batch.record_count,
        len(token),
    )
    end = _TOKEN_AT + len(token)
    size = max(batch.size, end)
    crc = crc32(token, crc32(rest))
    front = _FRONT.pack(batch.base_offset, size - FRONT_BYTES, batch.leader_epoch, _MAGIC, crc)
    return b"".join((front, rest, token, _filler(size - end)))


def parse_batches(records: bytes, *, may_be_cut: bool = False) -> list[Batch]:
    """Read whole batches, one after the other, and check each byte of them.

    With ``may_be_cut`` only the front of the last batch may be there, unless it is the first. Like any client, this
    throws it away.
    """
    batches: list[Batch] = []
    at = 0
    while at < len(records):
        if may_be_cut and batches and _is_cut(records, at):
            break
        if at + _TOKEN_AT > len(records):
            raise WireError(f"a batch of {len(records) - at} bytes has no whole header")
        base_offset, length, leader_epoch, magic, crc = _FRONT.unpack_from(records, at)
        rest = at + _FRONT.size
        attributes, last_delta, first_ms, last_ms, producer_id, epoch, sequence, number, token_length = (
            _REST.unpack_from(records, rest)
        )
        token_at = at + _TOKEN_AT
        token_end = token_at + token_length
        end = at + FRONT_BYTES + length
        if magic != _MAGIC or not token_at <= token_end <= end <= len(records):
            raise WireError(f"a batch with magic {magic} from {at} to {end}, its token ends at {token_end}")
        if crc != crc32(records[rest:token_end]) or last_delta != number - 1 or first_ms != last_ms:
            raise WireError(f"a batch whose header is damaged: {records[at:token_end]!r}")
        if records[token_end:end] != _filler(end - token_end):
            raise WireError(f"a batch whose payload is damaged: {records[at:token_end]!r}")
        token = records[token_at:token_end].decode()
        batches.append(
            Batch(token, end - at, number, producer_id, epoch, sequence, base_offset, leader_epoch, first_ms,
                  bool(attributes & _TRANSACTIONAL))
        )  # fmt: skip
        at = end
    return batches


def _is_cut(records: bytes, at: int) -> bool:
    """Return whether only the front of the batch at ``at`` is there. Its length says so, if that is there."""
    return at + FRONT_BYTES > len(records) or at + size_of_first(records, at) > len(records)


def parse_batch(records: bytes) -> Batch:
    """Read the one batch that a Produce request has for a partition."""
    batches = parse_batches(records)
    if len(batches) != 1:
        raise WireError(f"{len(batches)} batches where one was expected")
    return batches[0]


def appended(batch: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Return a batch as a broker keeps it: with its own offset and leader epoch, which the CRC does not cover."""
    return b"".join((_BASE_OFFSET.pack(base_offset), batch[8:12], pack_i32(leader_epoch), memoryview(batch)[16:]))


def size_of_first(records: bytes, at: int = 0) -> int:
    """Return the size of the batch that begins at ``at``."""
    return int(_OFFSET_AND_LENGTH.unpack_from(records, at)[1]) + FRONT_BYTES


def _filler(size: int) -> bytes:
    if size > len(_FILLER):
        raise WireError(f"a batch with {size} bytes of filler")
    return _FILLER[:size]
