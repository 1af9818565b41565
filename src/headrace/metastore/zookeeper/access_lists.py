"""Which access control list each new node gets. Source: Kafka's `ZkData.defaultAcls`."""

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

_OTHERS_WRITE_BELOW = "/consumers"
"""Kafka's consumers before 0.9 keep their offsets there, each with its own credentials or none."""
_SECRET = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/headrace/scram_decoys")


class AccessLists:
    """The access control lists of new nodes, as Apache Kafka sets them with `zookeeper.set.acl`."""

    def __init__(self, root: str, is_set: bool) -> None:
        self._root = root
        self._is_set = is_set

    def of(self, path: str) -> list[ACL]:
        """Open to all; with `zookeeper.set.acl`, all rights for the creator, and read for others unless the node has
        secrets."""
        bare = path[len(self._root) :]
        if not self._is_set or bare == _OTHERS_WRITE_BELOW:
            return list(OPEN_ACL_UNSAFE)
        if bare.startswith(_SECRET):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
