"""Exchanges the certificates of a running broker's TLS listeners, when settings or files change."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from headrace.broker.services import Services
from headrace.config import BrokerConfig

if TYPE_CHECKING:
    from headrace.network.tls.listeners import TlsListeners


def exchange_certificates(broker: Services, tls: TlsListeners, stack: AsyncExitStack) -> None:
    """Follows changes of settings and files."""

    def changed(_: BrokerConfig, now: BrokerConfig) -> None:
        tls.configure(now)
        broker.spawn(tls.look())

    broker.settings.check_first(tls.check)
    broker.settings.on_change(changed)
    stack.callback(broker.tasks.create_task(tls.watch()).cancel)
