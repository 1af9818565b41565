"""The access control lists of `/headrace`, which Apache Kafka's zookeeper-security-migration does not know.

With `zookeeper.set.acl` the broker closes at its start what was created before, so that the secret below it is read by
brokers only, and nobody else can have a broker count as dead.
"""

import asyncio
import logging
from typing import Any

from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

from headrace.metastore.store import NoNode, NotAllowed
from headrace.metastore.zookeeper.access_lists import AccessLists
from headrace.metastore.zookeeper.link import PendingAnswer, passed_on_to

log = logging.getLogger(__name__)

OWN = "/headrace"


async def close_own_nodes(client: KazooClient, acls: AccessLists, root: str) -> None:
    """Gives each node of headrace that is open to all the list that it would be created with."""
    paths = [root + OWN]
    while paths:
        path = paths.pop()
        try:
            found, _ = await _answered(client.get_acls_async(path))
            if found == OPEN_ACL_UNSAFE:
                await _answered(client.set_acls_async(path, acls.of(path)))
            paths += [f"{path}/{name}" for name in await _answered(client.get_children_async(path))]
        except NoNode:
            continue
        except NotAllowed:
            log.warning("the access control list of %s cannot be read or set: it belongs to somebody else", path)


async def _answered(answer: PendingAnswer) -> Any:
    future = asyncio.get_running_loop().create_future()
    answer.then, answer.is_recovery = passed_on_to(future), True
    return await future
