"""Names of an instance in the cluster: `orders` of instance `acme` is `acme.orders` on the disk and in the tree.

    its clients say    the cluster has         of
    orders             acme.orders             topics, groups, transactional ids, client ids of quotas
    User:alice         User:acme.alice         principals; User:* stays, since it stands for everybody
    * (literal)        acme. (prefixed)        patterns of ACLs

An instance's name has no dot, so the first dot ends it, and `acme.` is not the beginning of any other instance's
names. Kafka's tools accept such names, and Kafka's files stay Kafka's: an operator sees `acme.orders-0`.

Alternatives that were left: a name with a colon or a slash is no name of a Kafka topic; a UUID in place of the name
cannot be read; `acme-orders` is not unambiguous, since `a-b` and `a` could both be instances.
"""

SEPARATOR = "."
EVERYBODY = "User:*"


def instance_of(name: str) -> str:
    """The instance whose name a name of the cluster begins with, whether it exists or not; "" if there is none."""
    instance, dot, _ = name.partition(SEPARATOR)
    return instance if dot else ""


class Namespace:
    """The names of one instance."""

    __slots__ = ("instance", "prefix")

    def __init__(self, instance: str) -> None:
        self.instance, self.prefix = instance, instance + SEPARATOR

    def qualified(self, name: str) -> str:
        """The cluster's name of what the instance's clients call `name`."""
        return self.prefix + name

    def has(self, qualified: str) -> bool:
        """Whether a name of the cluster is one of the instance."""
        return qualified.startswith(self.prefix)

    def local(self, qualified: str) -> str | None:
        """What the instance's clients call a name of the cluster; None for one that is not the instance's."""
        return qualified[len(self.prefix) :] if qualified.startswith(self.prefix) else None

    def qualified_principal(self, principal: str) -> str:
        """`User:alice` -> `User:acme.alice`. A principal without a type is left as it is: it is refused elsewhere."""
        kind, colon, name = principal.partition(":")
        if not colon or principal == EVERYBODY:
            return principal
        return f"{kind}:{self.prefix}{name}"

    def qualified_client(self, principal: str) -> str:
        """As `qualified_principal`, for who a client is: a user who is called `*` is nobody else."""
        kind, _, name = principal.partition(":")
        return f"{kind}:{self.prefix}{name}"

    def local_principal(self, principal: str) -> str | None:
        """`User:acme.alice` -> `User:alice`; None for a principal that is not the instance's."""
        kind, _, name = principal.partition(":")
        if principal == EVERYBODY:
            return principal
        return f"{kind}:{name[len(self.prefix) :]}" if name.startswith(self.prefix) else None
