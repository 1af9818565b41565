"""Administration of quotas: describe and alter those of users, client ids, their defaults, and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import error_for
from headrace.protocol import messages as m

USER, CLIENT_ID, IP = "user", "client-id", "ip"

_EXACT, _DEFAULT, _ANY = range(3)


class Quotas(NamedTuple):
    """The quotas of one entity."""

    entity: Mapping[str, str | None]
    """Names by type (user, client-id, ip); a name of None is the default of the type."""
    values: Mapping[str, float]
    """By name: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate,
    connection_creation_rate."""


class QuotaAdmin:
    """Calls about quotas on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list_quotas(self, kinds: tuple[str, ...] = ()) -> list[Quotas]:
        """The quotas of every entity that has a part of each of these types."""
        return self._describe([(kind, _ANY, None) for kind in kinds], strict=False)

    def describe_quotas(self, entity: Mapping[str, str | None]) -> dict[str, float]:
        """The quotas that are set for exactly this entity."""
        filters = [(kind, _DEFAULT if name is None else _EXACT, name) for kind, name in entity.items()]
        found = self._describe(filters, strict=True)
        return dict(found[0].values) if found else {}

    def alter_quotas(
        self, entity: Mapping[str, str | None], changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Sets quotas of an entity, or removes those that are None. Raises `KafkaError`."""
        part, op = m.AlterClientQuotasRequest.EntityData, m.AlterClientQuotasRequest.OpData
        entry = m.AlterClientQuotasRequest.EntryData(
            entity=[part(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[op(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
        )
        request = m.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
        deadline = self._cluster.deadline()

        def attempt() -> None:
            answer = self._cluster.call_any(request, m.AlterClientQuotasResponse, deadline)
            for result in answer.entries:
                if result.error_code:
                    raise error_for(result.error_code, result.error_message or "quotas")

        self._cluster.retry(attempt, deadline)

    def _describe(self, filters: list[tuple[str, int, str | None]], *, strict: bool) -> list[Quotas]:
        part = m.DescribeClientQuotasRequest.ComponentData
        request = m.DescribeClientQuotasRequest(
            components=[part(entity_type=kind, match_type=how, match=name) for kind, how, name in filters],
            strict=strict,
        )
        deadline = self._cluster.deadline()

        def attempt() -> list[Quotas]:
            answer = self._cluster.call_any(request, m.DescribeClientQuotasResponse, deadline)
            if answer.error_code:
                raise error_for(answer.error_code, answer.error_message or "quotas")
            return [
                Quotas(
                    {part.entity_type: part.entity_name for part in each.entity},
                    {value.key: value.value for value in each.values},
                )
                for each in answer.entries or ()
            ]

        return sorted(self._cluster.retry(attempt, deadline), key=_order)


def _order(quotas: Quotas) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in sorted(quotas.entity.items(), reverse=True)]
