"""The TLS context of a connection to ZooKeeper. The metadata store may not know the network, so it is handed this."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext


def zookeeper_context(settings: Mapping[str, str]) -> "SSLContext":
    """From `ssl.*` settings. Reads the files. Raises `InvalidConfig`."""
    from headrace.network.tls.contexts import client_context  # imports ssl, which most brokers do not need

    return client_context(settings)
