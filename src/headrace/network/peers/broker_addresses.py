"""Addresses of the other brokers, from the controller's requests.

The controller sends LeaderAndIsr before the UpdateMetadata of the same change, so LeaderAndIsr carries the addresses of
the leaders. Those addresses hold until the next UpdateMetadata.
"""

from collections.abc import Iterable

from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import Broker
from headrace.network.peers.peers import PeerAddress
from headrace.protocol import messages as m
from headrace.types import BrokerId

PLAINTEXT = "PLAINTEXT"


def peer_address(broker: Broker, listener: str) -> PeerAddress | None:
    """A broker's address for other brokers: its listener of that name, or its first listener; None without one."""
    named = [each for each in broker.endpoints if each.listener == (listener or PLAINTEXT)] or list(broker.endpoints)
    return PeerAddress(broker.id, named[0].host, named[0].port) if named else None


class BrokerAddresses:
    """The addresses that brokers use among themselves."""

    def __init__(self, metadata: MetadataCache, listener: str) -> None:
        """`listener` is `inter.broker.listener.name`, or empty."""
        self._metadata, self._listener = metadata, listener
        self._from_requests: dict[BrokerId, PeerAddress] = {}

    def address_of(self, broker_id: BrokerId) -> PeerAddress | None:
        """A broker's address for other brokers; None while it is not known."""
        address = self._from_requests.get(broker_id)
        if address is not None:
            return address
        broker = self._metadata.brokers.get(broker_id)
        return None if broker is None else peer_address(broker, self._listener)

    def note(self, leaders: Iterable[m.LeaderAndIsrRequest.LeaderAndIsrLiveLeader]) -> None:
        """Notes the addresses of leaders in a LeaderAndIsr."""
        for each in leaders:
            broker_id = BrokerId(each.broker_id)
            self._from_requests[broker_id] = PeerAddress(broker_id, each.host_name, each.port)

    def forget(self) -> None:
        """Forgets noted addresses: an UpdateMetadata has brought all of them."""
        self._from_requests.clear()
