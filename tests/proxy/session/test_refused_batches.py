"""Tests which batches of idempotent producers would overtake a refused one."""

from kafka_quota_proxy.protocol.producer_sequences import ProducerBatch
from kafka_quota_proxy.proxy.session.refused_batches import RefusedBatches

LAST = 2**31 - 1


def batch(sequence: int, *, partition: int = 0, producer_id: int = 7, epoch: int = 0) -> ProducerBatch:
    return ProducerBatch(b"t", partition, producer_id, epoch, sequence)


def refused(*batches: ProducerBatch) -> RefusedBatches:
    made = RefusedBatches()
    made.add(batches, now_ms=0, is_behind=False)
    return made


def test_later_batches_of_the_producer_overtake() -> None:
    batches = refused(batch(5))

    assert batches.precede([batch(6)])
    assert batches.precede([batch(9, partition=1), batch(9)])
    assert not batches.precede([batch(5)])
    assert not batches.precede([batch(4)])
    assert not batches.precede([batch(6, partition=1), batch(6, producer_id=8), batch(6, epoch=1)])


def test_sequence_numbers_begin_again() -> None:
    batches = refused(batch(LAST))

    assert batches.precede([batch(0)])
    assert not refused(batch(0)).precede([batch(LAST)])
    batches.remove([batch(LAST)])
    assert not batches


def test_each_refused_batch_is_kept_until_it_passes() -> None:
    batches = refused(batch(1), batch(2), batch(3))

    batches.remove([batch(2)])

    assert len(batches) == 1
    assert batches.precede([batch(4)])
    assert not batches.precede([batch(3)])


def test_new_epoch_replaces_the_batches_of_the_old_one() -> None:
    batches = refused(batch(5), batch(0, epoch=1))

    assert len(batches) == 1
    assert not batches.precede([batch(6)])
    assert batches.precede([batch(1, epoch=1)])


def test_refused_batches_expire_after_the_last_that_was_not_behind() -> None:
    batches = refused(batch(5))
    batches.add([batch(6)], now_ms=50_000, is_behind=True)

    assert not batches.has_expired(59_999)
    assert batches.has_expired(60_000)
    batches.add([batch(5)], now_ms=60_000, is_behind=False)
    assert not batches.has_expired(119_999)
