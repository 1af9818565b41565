"""Where the other brokers are, as far as the controller has said.

LeaderAndIsr comes before the UpdateMetadata that tells the same to everybody, and brings along where the leaders are;
what it says holds until the next UpdateMetadata.
"""

from collections.abc import Iterable

from headrace.broker.metadata_cache import MetadataCache
from headrace.coordination.model import Broker
from headrace.coordination.peers import PeerAddress
from headrace.protocol import messages as m
from headrace.types import BrokerId

PLAINTEXT = "PLAINTEXT"


def peer_address(broker: Broker, listener: str) -> PeerAddress | None:
    """Where a broker is reached by others: its listener of that name, or its first; None when it has none."""
    named = [each for each in broker.endpoints if each.listener == (listener or PLAINTEXT)] or list(broker.endpoints)
    return PeerAddress(broker.id, named[0].host, named[0].port) if named else None


class PeerBook:
    """Addresses of brokers, for brokers."""

    def __init__(self, metadata: MetadataCache, listener: str) -> None:
        """`listener` is `inter.broker.listener.name`, or empty."""
        self._metadata, self._listener = metadata, listener
        self._told: dict[BrokerId, PeerAddress] = {}

    def address_of(self, broker_id: BrokerId) -> PeerAddress | None:
        """Where a broker is reached by others; None while that is not known."""
        told = self._told.get(broker_id)
        if told is not None:
            return told
        broker = self._metadata.brokers.get(broker_id)
        return None if broker is None else peer_address(broker, self._listener)

    def note(self, leaders: Iterable[m.LeaderAndIsrRequest.LeaderAndIsrLiveLeader]) -> None:
        """LeaderAndIsr has said where these are."""
        for each in leaders:
            broker_id = BrokerId(each.broker_id)
            self._told[broker_id] = PeerAddress(broker_id, each.host_name, each.port)

    def forget(self) -> None:
        """UpdateMetadata has said where all are."""
        self._told.clear()
