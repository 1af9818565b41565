"""Sends the controller's requests: in process to its own broker, over the network to the others.

Over the network they have their own lane, which keeps their order and waits for no long poll. `broker_channels` of the
controller repeats requests to a broker that cannot be reached. Where `control.plane.listener.name` is set, they go to
that listener of each broker that has it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.broker.cluster.control_plane import ControlPlane
from headrace.controller.broker_channels import SendRequest
from headrace.controller.decisions.control_requests import ControlRequest, ControlResponse
from headrace.metadata.model import Broker
from headrace.network.peers.broker_addresses import peer_address
from headrace.network.peers.peers import Peers, PeerUnreachable
from headrace.protocol import messages as m
from headrace.types import BrokerId

LANE = "control"
TIMEOUT_MS = 30_000


class Way(NamedTuple):
    """Connections to a listener of the other brokers."""

    peers: Peers
    listener: str


def control_sender(own_id: BrokerId, control: ControlPlane, ways: Sequence[Way]) -> SendRequest:
    """The function that sends the controller's requests, by the first way whose listener the broker has, or else by the
    last, that of `inter.broker.listener.name`."""

    async def send(broker: Broker, request: ControlRequest) -> ControlResponse:
        if broker.id == own_id:
            return await control.handle(request)
        names = {each.listener for each in broker.endpoints}
        peers, listener = next((each for each in ways if each.listener in names), ways[-1])
        address = peer_address(broker, listener)
        if address is None:
            raise PeerUnreachable(f"the registration of broker {broker.id} has no listener")
        match request:
            case m.LeaderAndIsrRequest():
                return await peers.send(address, request, m.LeaderAndIsrResponse, timeout_ms=TIMEOUT_MS, lane=LANE)
            case m.StopReplicaRequest():
                return await peers.send(address, request, m.StopReplicaResponse, timeout_ms=TIMEOUT_MS, lane=LANE)
            case _:
                return await peers.send(address, request, m.UpdateMetadataResponse, timeout_ms=TIMEOUT_MS, lane=LANE)

    return send
