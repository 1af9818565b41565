"""Decoding of nodes that may be malformed: logs an error and skips the node, since it must not stop a controller."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from headrace.metadata import znodes
from headrace.metadata.model import Broker
from headrace.metastore.store import Node

log = logging.getLogger(__name__)

T = TypeVar("T")


def decode_or_leave_out(what: str, decode: Callable[[], T]) -> T | None:
    """The decoded node, or None with an error in the log."""
    try:
        return decode()
    except znodes.CorruptNode as error:
        log.error("%s is malformed and is ignored; delete or correct the node: %s", what, error)
        return None


def is_marked(mark: Node, broker: Broker, path: str = "") -> bool:
    """Whether a mark (of a fenced broker, or the one at `path`) names a broker's current registration."""
    where = path or znodes.fenced(broker.id)
    return decode_or_leave_out(where, partial(znodes.decode_fenced, mark.data)) == broker.epoch
