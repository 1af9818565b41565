"""What more than one case of the grid compares."""

from collections.abc import Sequence

from tests.conformance.clients import CLIENTS
from tests.conformance.model import Client, Consumed, Message
from tests.wire import StoredBatch, Wire, stored_batches


def assert_same(read: Sequence[Consumed], written: Sequence[Message], first_offset: int, reader: Client) -> None:
    """Byte for byte what was written, at consecutive offsets; timestamps where the writer gave them."""
    assert [each.offset for each in read] == list(range(first_offset, first_offset + len(written))), reader.name
    for got, meant in zip((each.message for each in read), map(reader.seen, written), strict=True):
        assert (got.key, got.value, tuple(got.headers)) == (meant.key, meant.value, meant.headers), reader.name
        assert meant.timestamp_ms in (None, got.timestamp_ms), reader.name


def stored(bootstrap: str, topic: str, partition: int = 0, offset: int = 0) -> list[StoredBatch]:
    """The batches of a partition as the broker has them."""
    with Wire(bootstrap) as wire:
        return stored_batches(wire.fetch(topic, offset, partition=partition).records)


def other_writer() -> Client:
    """A client that can say everything, for cases that only read."""
    return next(each for each in CLIENTS if each.name == "headrace")
