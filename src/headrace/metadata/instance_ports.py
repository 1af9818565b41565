"""The ports that the system assigned to listeners of instances: a broker that starts again takes the same ones.

/headrace/instance_ports/N      {"acme":40123,...} of broker N
"""

import json
import logging
from collections.abc import Mapping

from headrace.metastore.store import MetadataStore, NoNode, ensure_path

log = logging.getLogger(__name__)

PORTS = "/headrace/instance_ports"


async def read_ports(store: MetadataStore, broker: int) -> dict[str, int]:
    """The ports of a broker; none if there are none, or what is stored cannot be read."""
    [node] = await store.get_many([_path(broker)])
    if node is None:
        return {}
    try:
        return {str(name): port for name, port in json.loads(node.data).items() if type(port) is int}
    except (ValueError, AttributeError, RecursionError):
        log.warning("%s is malformed and is ignored: listeners of instances get other ports", _path(broker))
        return {}


async def write_ports(store: MetadataStore, broker: int, ports: Mapping[str, int]) -> None:
    """Stores the ports of a broker in place of those before."""
    data = json.dumps(ports, separators=(",", ":"), sort_keys=True).encode()
    try:
        await store.set(_path(broker), data)
    except NoNode:
        await ensure_path(store, _path(broker))
        await store.set(_path(broker), data)


def _path(broker: int) -> str:
    return f"{PORTS}/{broker}"
