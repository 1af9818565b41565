"""The settings of authorization. Source: Kafka's `AclAuthorizer`, `StandardAuthorizer`."""

from dataclasses import dataclass

from headrace.config.setting import Settings, declare


def check_super_users(text: str) -> None:
    """Raises `ValueError` unless the text is a list of principals."""
    for each in principals_of(text):
        kind, colon, name = each.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"names {each!r}: expected TYPE:NAME;TYPE:NAME, such as User:admin;User:CN=ops,O=x")


def principals_of(text: str) -> tuple[str, ...]:
    """The principals of a list separated by semicolons: distinguished names contain commas."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


# fmt: off
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class AuthorizerSettings(Settings):
    """The settings of the authorizer. `BrokerConfig` has their slots."""

    __slots__ = ()

    allow_everyone_if_no_acl_found: bool = declare(
        False, "allow.everyone.if.no.acl.found", "boolean",
        "Whether everybody may do everything to a resource for which there is no ACL.")
    authorizer_class_name: str = declare(
        "", "authorizer.class.name", "string",
        "The authorizer. Either of Apache Kafka's two names enables ACLs, which are kept as "
        "kafka.security.authorizer.AclAuthorizer keeps them. If empty, every client may do everything.",
        choices=("", "kafka.security.authorizer.AclAuthorizer",
                 "org.apache.kafka.metadata.authorizer.StandardAuthorizer"))
    super_users: str = declare(
        "", "super.users", "string",
        "Principals that may do everything, separated by semicolons: User:admin;User:CN=ops,O=x. Those of the brokers "
        "of a cluster belong here. It has an effect only with authorizer.class.name.", check=check_super_users)
