"""Refuses to serve other machines without knowing who asks, and keeps the broker's files to its own user.

    a listener on loopback                                           always
    on another address: SASL_*, or SSL with ssl.client.auth=required always
    on another address: PLAINTEXT, or SSL without client certificates   with --insecure, or --insecure=listeners
    on another address: OAUTHBEARER with the unsecured validator        the same
    headrace.metrics.listen on another address                       with --insecure, or --insecure=metrics: HTTP
                                                                     authenticates nobody, and names topics and clients

Apache Kafka listens on every address without a word. An address is judged as it is written, without DNS.
"""

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from headrace.broker.environment import UNIX
from headrace.broker.options import StartRefused
from headrace.config import BrokerConfig
from headrace.config.listener_settings import settings_of_listener
from headrace.network.listeners import Listener, parse_listeners, parse_protocols
from headrace.security.sasl.oauthbearer import MECHANISM, UNSECURED

PRIVATE_UMASK = 0o077
"""Files that the broker makes are its user's alone: records, and in the metadata store the verifiers of passwords."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address of a listener. A name other than localhost may be any address."""
    bare = host.strip("[]").lower().removeprefix("::ffff:")
    return bare in ("localhost", "::1") or (bare.startswith("127.") and set(bare) <= set("0123456789."))


def refuse_exposure(config: BrokerConfig, insecure: Collection[str]) -> None:
    """Raises `StartRefused` for a listener that strangers could use, unless `insecure` has `listeners` or `metrics`."""
    if "listeners" not in insecure:
        for listener in _listeners_for_strangers(config):
            raise StartRefused(
                f"listener {listener} can be reached from other machines and authenticates nobody: listen on 127.0.0.1,"
                " let clients authenticate (SASL_SSL, or SSL with ssl.client.auth=required; not with the unsecured "
                "validator of OAUTHBEARER), or say --insecure."
            )
    if config.metrics_listen and "metrics" not in insecure:
        host = config.metrics_listen.rpartition(":")[0]
        if host and not (is_loopback(host) or config.metrics_listen.startswith(UNIX)):
            raise StartRefused(
                f"headrace.metrics.listen={config.metrics_listen} can be reached from other machines and authenticates "
                "nobody: listen on 127.0.0.1 behind a proxy that does, or say --insecure=metrics."
            )


def is_for_strangers(config: BrokerConfig, listener: Listener) -> bool:
    """Whether a listener that is opened at run time could be used by strangers. An operator who has permitted that for
    the broker's own listeners has permitted it."""
    return (
        not is_loopback(listener.host)
        and not _authenticates(config, listener)
        and not any(_listeners_for_strangers(config))
    )


def make_files_private() -> None:
    """Files and directories that this process makes from now on can be read by its user alone."""
    os.umask(os.umask(PRIVATE_UMASK) | PRIVATE_UMASK)


def readable_directories(paths: Sequence[str]) -> list[str]:
    """A warning for each existing data directory that every user of the machine can read."""
    found = []
    for path in paths:
        try:
            mode = stat.S_IMODE(Path(path).stat().st_mode)
        except OSError:
            continue
        if mode & stat.S_IROTH:
            found.append(f"data directory {path} can be read by every user of this machine: chmod 700 {path}")
    return found


def _listeners_for_strangers(config: BrokerConfig) -> Iterator[Listener]:
    protocols = parse_protocols(config.listener_security_protocol_map)
    for listener in parse_listeners(config.listeners, protocols):
        if not is_loopback(listener.host) and not _authenticates(config, listener):
            yield listener


def _authenticates(config: BrokerConfig, listener: Listener) -> bool:
    settings = settings_of_listener(config, listener.name)

    def text(name: str) -> str:
        return settings.get(name, "").strip().lower()

    if listener.is_sasl:  # without a signature everybody is whom they say
        mechanisms = [each.strip() for each in text("sasl.enabled.mechanisms").split(",")]
        return MECHANISM.lower() not in mechanisms or text(UNSECURED) != "true"
    return listener.is_tls and text("ssl.client.auth") == "required"
