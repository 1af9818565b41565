"""How what the controller says gets to a broker: in process to its own, over the wire to the others.

Over the wire it has a lane of its own, so that it overtakes nothing and waits for no long poll. A broker that cannot be
reached is told again by who asks (`coordination.channels`).
"""

from headrace.broker.control_plane import ControlPlane
from headrace.broker.peer_book import peer_address
from headrace.coordination.channels import Send
from headrace.coordination.model import Broker
from headrace.coordination.peers import Peers, PeerUnreachable
from headrace.coordination.requests import ControlRequest, ControlResponse
from headrace.protocol import messages as m
from headrace.types import BrokerId

LANE = "control"
TIMEOUT_MS = 30_000


def control_sender(own_id: BrokerId, control: ControlPlane, peers: Peers, listener: str) -> Send:
    """The controller's way to each broker; `listener` is `inter.broker.listener.name`."""

    async def send(broker: Broker, request: ControlRequest) -> ControlResponse:
        if broker.id == own_id:
            return await control.handle(request)
        address = peer_address(broker, listener)
        if address is None:
            raise PeerUnreachable(f"broker {broker.id} says of no listener where it is")
        match request:
            case m.LeaderAndIsrRequest():
                return await peers.ask(address, request, m.LeaderAndIsrResponse, timeout_ms=TIMEOUT_MS, lane=LANE)
            case m.StopReplicaRequest():
                return await peers.ask(address, request, m.StopReplicaResponse, timeout_ms=TIMEOUT_MS, lane=LANE)
            case _:
                return await peers.ask(address, request, m.UpdateMetadataResponse, timeout_ms=TIMEOUT_MS, lane=LANE)

    return send
