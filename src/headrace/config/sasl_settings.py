"""The settings of SASL and of delegation tokens. Source: Kafka's `BrokerSecurityConfigs`, `SaslConfigs`.

`listener.name.NAME.SETTING` is for one listener, and `listener.name.NAME.MECHANISM.SETTING` for one mechanism of it.
"""

from dataclasses import dataclass

from headrace.config.setting import DAY_MS, Settings, declare


# fmt: off
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class SaslSettings(Settings):
    """How clients prove who they are. `BrokerConfig` has its slots."""

    __slots__ = ()

    authentication_timeout_ms: int = declare(
        30_000, "headrace.authentication.timeout.ms", "int",
        "The time within which a new connection through a SASL listener must be authenticated; it is closed then.",
        unit="ms", low=100)
    connection_failed_authentication_delay_ms: int = declare(
        100, "connection.failed.authentication.delay.ms", "int",
        "How long the broker waits before it answers a failed authentication and closes the connection.", unit="ms",
        low=0)
    connections_max_reauth_ms: int = declare(
        0, "connections.max.reauth.ms", "long",
        "The time after which a client must authenticate again (KIP-368). The connection of one that does not is "
        "closed at its next request. 0: as long as its credentials are valid.", unit="ms")
    delegation_token_expiry_check_interval_ms: int = declare(
        3_600_000, "delegation.token.expiry.check.interval.ms", "long",
        "How often the controller removes delegation tokens that are over. They are refused before that.", unit="ms",
        low=1)
    delegation_token_expiry_time_ms: int = declare(
        86_400_000, "delegation.token.expiry.time.ms", "long",
        "How long a delegation token is valid before it has to be renewed.", unit="ms", low=1)
    delegation_token_max_lifetime_ms: int = declare(
        7 * DAY_MS, "delegation.token.max.lifetime.ms", "long",
        "How long a delegation token can be renewed.", unit="ms", low=1)
    delegation_token_secret_key: str = declare(
        "", "delegation.token.secret.key", "password",
        "The secret from which the HMACs of delegation tokens are computed, the same on every broker. If empty, there "
        "are no delegation tokens.")
    headrace_delegation_tokens_per_owner_max: int = declare(
        1000, "headrace.delegation.tokens.per.owner.max", "int",
        "The maximum number of delegation tokens of one owner. Tokens that are over count until they are removed. "
        "Further ones are refused with POLICY_VIOLATION. Apache Kafka has no such limit.", low=1)
    sasl_enabled_mechanisms: tuple[str, ...] = declare(
        ("GSSAPI",), "sasl.enabled.mechanisms", "list",
        "The SASL mechanisms of a listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI (Kerberos, which "
        "needs the extra gssapi).")
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = declare(
        ("DEFAULT",), "sasl.kerberos.principal.to.local.rules", "list",
        "How the principals of Kerberos become names of users: the first rule that applies decides. DEFAULT takes the "
        "first part of principals of the default realm.")
    sasl_kerberos_service_name: str = declare(
        "", "sasl.kerberos.service.name", "string",
        "The first part of the brokers' principals, for connections to other brokers by GSSAPI. It may stand as "
        "serviceName in sasl.jaas.config instead.")
    sasl_mechanism_inter_broker_protocol: str = declare(
        "GSSAPI", "sasl.mechanism.inter.broker.protocol", "string",
        "The SASL mechanism with which this broker connects to others. A new one counts from the next connection on.",
        dynamic=True)
    sasl_server_max_receive_size: int = declare(
        128 << 10, "sasl.server.max.receive.size", "int",
        "The maximum size of a request with a bearer token or a ticket, before the authentication is complete. PLAIN "
        "and SCRAM have messages of at most 16 KiB. Apache Kafka's default is 512 KiB.",
        unit="bytes", low=1 << 10)
    sasl_oauthbearer_clock_skew_seconds: int = declare(
        30, "sasl.oauthbearer.clock.skew.seconds", "int",
        "How much the clocks of this broker and of the issuer of bearer tokens may differ.", unit="s", low=0)
    sasl_oauthbearer_expected_audience: tuple[str, ...] = declare(
        (), "sasl.oauthbearer.expected.audience", "list",
        "The audiences for one of which a bearer token must be (aud). If empty, any.")
    sasl_oauthbearer_expected_issuer: str = declare(
        "", "sasl.oauthbearer.expected.issuer", "string", "The issuer of bearer tokens (iss). If empty, any.")
    sasl_oauthbearer_expected_scope: tuple[str, ...] = declare(
        (), "headrace.sasl.oauthbearer.expected.scope", "list",
        "The scopes all of which a bearer token must have. Apache Kafka has no such setting.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = declare(
        3_600_000, "sasl.oauthbearer.jwks.endpoint.refresh.ms", "long",
        "How often the keys of bearer tokens are read again. A token with an unknown key has them read again too.",
        unit="ms", low=1000)
    sasl_oauthbearer_jwks_endpoint_url: str = declare(
        "", "sasl.oauthbearer.jwks.endpoint.url", "string",
        "The keys of bearer tokens (JWKS), for OAUTHBEARER: an https, http or file URL.")
    sasl_oauthbearer_scope_claim_name: str = declare(
        "scope", "sasl.oauthbearer.scope.claim.name", "string", "The claim with the scopes of a bearer token.")
    sasl_oauthbearer_sub_claim_name: str = declare(
        "sub", "sasl.oauthbearer.sub.claim.name", "string", "The claim with the name of a bearer token's user.")
    sasl_oauthbearer_unsecured_validator_enable: bool = declare(
        False, "headrace.sasl.oauthbearer.unsecured.validator.enable", "boolean",
        "Whether bearer tokens without a signature are accepted, so that everybody can log in under any name. Only for "
        "development. Apache Kafka does it where no keys are configured.")
