"""Requests about quotas, and clients with an id of their own, in few words."""

import socket
import uuid
from collections.abc import Mapping
from typing import Any

from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import write_request_header
from tests.asker import CORRELATION_ID, Asker
from tests.eventually import eventually

Entity = Mapping[str, str | None]
Row = tuple[tuple[tuple[str, str | None], ...], dict[str, float]]


class Client(Asker):
    """A connection of a client with an id, from an address."""

    def __init__(self, bootstrap: str, client_id: str | None, *, local: str = "127.0.0.1") -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60, (local, 0))
        self.client_id = client_id

    def send(self, request: Message, version: int) -> None:
        """One request."""
        assert request.API_KEY is not None
        head = write_request_header(request.API_KEY, version, CORRELATION_ID, self.client_id)
        body = head + request.encode(version)
        self.socket.sendall(len(body).to_bytes(4, "big") + body)


def alter(entity: Entity, **quotas: float | None) -> m.AlterClientQuotasRequest:
    """Sets quotas of an entity; None removes one. `client_id` in an entity is for `client-id`."""
    part, op = m.AlterClientQuotasRequest.EntityData, m.AlterClientQuotasRequest.OpData
    entry = m.AlterClientQuotasRequest.EntryData(
        entity=[part(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        ops=[op(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )
    return m.AlterClientQuotasRequest(entries=[entry])


def describe(*components: tuple[str, int, str | None], strict: bool = False) -> m.DescribeClientQuotasRequest:
    """The filter: type, kind of match, name."""
    part = m.DescribeClientQuotasRequest.ComponentData
    return m.DescribeClientQuotasRequest(
        components=[part(entity_type=kind, match_type=how, match=name) for kind, how, name in components], strict=strict
    )


def rows(answer: Any) -> list[Row]:
    """What DescribeClientQuotas answers, in an order."""
    return sorted(
        (
            tuple(sorted((part.entity_type, part.entity_name) for part in each.entity)),
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries
    )


def set_quota(asker: Asker, entity: Entity, **quotas: float | None) -> None:
    """Sets quotas, and waits until they are in force. Apache Kafka describes a quota shortly before it applies it; one
    that is set afterwards is described only when the first is in force."""
    _set_and_see(asker, entity, quotas)
    fence = {"client_id": f"fence-{uuid.uuid4().hex[:8]}"}
    _set_and_see(asker, fence, {"producer_byte_rate": 1e9})
    asker.ask(alter(fence, producer_byte_rate=None), 1)


def _set_and_see(asker: Asker, entity: Entity, quotas: Mapping[str, float | None]) -> None:
    answer = asker.ask(alter(entity, **quotas), 1)
    assert [(each.error_code, each.error_message) for each in answer.entries] == [(0, None)]
    wanted = {key: value for key, value in quotas.items() if value is not None}
    filters = [(kind.replace("_", "-"), 1 if name is None else 0, name) for kind, name in entity.items()]

    def is_described() -> bool:
        found = rows(asker.ask(describe(*filters, strict=True), 1))
        return (found[0][1] if found else {}).items() >= wanted.items()

    eventually(is_described, f"{entity} to have {quotas}")
