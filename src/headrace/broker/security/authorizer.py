"""The authorizer of a broker: the rules that are stored, the settings, and who is told when rules change.

    authorizer.class.name               either of Apache Kafka's two; empty: no authorizer, everything is admitted
    super.users                         principals that are not subject to rules
    allow.everyone.if.no.acl.found      what holds for a resource without rules

The decisions are `headrace.security.acls`, the stored rules `headrace.metadata.stored_acls`. Each admission that is
attached drops its kept decisions when a rule changes, so that connections that are open ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.security.audit import AuditLog
from headrace.config import BrokerConfig
from headrace.config.authorizer_settings import principals_of
from headrace.errors import KafkaError
from headrace.in_slices import Turns
from headrace.metadata.stored_acls import Decide, StoredAcls
from headrace.metastore.store import MetadataStore
from headrace.security.acls.authorizer import AclAuthorizer
from headrace.security.acls.filters import PatternFilter
from headrace.security.acls.model import Pattern

if TYPE_CHECKING:
    from headrace.broker.request.admission import Admission


class Authorizer:
    """Keeps the rules, and changes them."""

    def __init__(self, config: BrokerConfig, store: MetadataStore, loop: asyncio.AbstractEventLoop) -> None:
        self.rules = AclAuthorizer(
            principals_of(config.super_users), allow_if_no_rule=config.allow_everyone_if_no_acl_found
        )
        self.audit = AuditLog(loop)
        self._stored = StoredAcls(store, self.rules, self._changed)
        self._admissions: list[Admission] = []

    async def start(self) -> None:
        """Reads the rules, and follows their changes. Raises `CorruptNode`."""
        await self._stored.start()

    async def close(self) -> None:
        """Stops following changes."""
        self.audit.close()
        await self._stored.close()

    def attach(self, admission: Admission) -> None:
        """From now on the admission applies these rules, and tells of its decisions."""
        self._admissions.append(admission)
        admission.audit = self.audit
        admission.rules_changed(self.rules)

    def detach(self, admission: Admission) -> None:
        """The admission is no longer in use."""
        if admission in self._admissions:
            self._admissions.remove(admission)

    async def matching_patterns(self, wanted: PatternFilter, turns: Turns) -> list[Pattern]:
        """The patterns with rules that a filter selects. A filter without a name looks at all of them, in slices; the
        rules may change meanwhile, so a pattern may have none any more."""
        if wanted.name is not None:
            await turns.count(1 + self.rules.look_ups(wanted))
            return self.rules.matching_patterns(wanted)
        found = []
        for pattern in self.rules.patterns:
            if wanted.accepts(pattern):
                found.append(pattern)
            await turns.count()
        return found

    async def change(self, changes: Mapping[Pattern, Decide]) -> dict[Pattern, KafkaError]:
        """Changes the rules of patterns, on this broker before it returns. See `StoredAcls.change`."""
        return await self._stored.change(changes)

    def _changed(self) -> None:
        for admission in self._admissions:
            admission.rules_changed(self.rules)
