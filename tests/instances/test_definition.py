"""What an instance may be, its JSON, and its names."""

import json

import pytest

from headrace.errors import InvalidConfig
from headrace.instances.definition import Instance, InstanceState, WhenFull, decode_instance, described, encode_instance
from headrace.instances.names import Namespace, instance_of

ACME = Instance("acme", "b9vXUNcpRtutg2ZBJpUNtQ")


def test_json_keeps_every_field_and_leaves_out_defaults() -> None:
    assert json.loads(encode_instance(ACME)) == {"version": 1, "name": "acme", "id": "b9vXUNcpRtutg2ZBJpUNtQ"}
    full = ACME.altered(
        {
            "bytes_in": 1 << 20,
            "capacity": 1 << 30,
            "when_full": "throttle",
            "brokers": [1, 2],
            "allow": ["10.0.0.0/8", "2001:db8::/32"],
            "addresses": ["1=kafka.example:9093"],
            "state": "deleting",
            "deleted_at_ms": 5,
            "port": None,
        }
    )
    assert (full.when_full, full.brokers, full.state) == (WhenFull.THROTTLE, (1, 2), InstanceState.DELETING)
    assert decode_instance(encode_instance(full)) == full
    assert described(full)["brokers"] == [1, 2]


def test_a_newer_broker_s_fields_are_ignored() -> None:
    assert decode_instance(b'{"version":9,"name":"acme","id":"b9vXUNcpRtutg2ZBJpUNtQ","colour":"red"}') == ACME


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"version":1}', b'{"version":1,"name":"A","id":"x"}', b"[" * 9999]
)
def test_other_bytes_are_no_instance(data: bytes) -> None:
    with pytest.raises(InvalidConfig):
        decode_instance(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"bytes_in": 0},
        {"bytes_in": True},
        {"bytes_in": 1 << 63},
        {"capacity": "1"},
        {"burst_seconds": float("nan")},
        {"protocol": "TLS"},
        {"port": 65536},
        {"brokers": [1, 1]},
        {"brokers": [-1]},
        {"brokers": 1},
        {"allow": ["10.0.0.1/8"]},
        {"deny": ["nowhere"]},
        {"addresses": ["1=9092"]},
        {"retention_ms_min": 2, "retention_ms_max": 1},
        {"when_full": "never"},
        {"name": "other"},
        {"id": "other"},
        {"colour": "red"},
    ],
    ids=str,
)
def test_what_is_not_allowed_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig):
        ACME.altered(changes)


@pytest.mark.parametrize("name", ["", "Acme", "a.b", "a_b", "-a", "a-", "a" * 33, "é"])
def test_names_are_labels(name: str) -> None:
    with pytest.raises(InvalidConfig, match="cannot be called"):
        Instance(name, ACME.id)


def test_names_are_qualified_and_back() -> None:
    acme, other = Namespace("acme"), Namespace("acme-2")
    assert acme.local(acme.qualified("orders")) == "orders"
    assert acme.local("acme") is acme.local("acme-2.orders") is other.local("acme.orders") is None
    assert instance_of("acme.orders.v2") == "acme" and instance_of("orders") == ""
    assert acme.qualified_principal("User:alice") == "User:acme.alice"
    assert acme.local_principal("User:acme.alice") == "User:alice"
    assert acme.local_principal("User:alice") is None
    assert acme.qualified_principal("User:*") == acme.local_principal("User:*") == "User:*"
