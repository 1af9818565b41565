"""What serves as a serializer, and the bytes that ours make: beside Kafka's, and those of other clients."""

import dataclasses
import json
import sys
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
import pydantic
import pytest
from confluent_kafka import serialization as confluent
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.consumer.deserialized_records import Deserializing
from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.serializers import JsonDeserializer, JsonSerializer, SerializationContext, SerializationError
from headrace.client.serializers.errors import RecordDeserializationError
from headrace.client.serializers.serializing import Serializing
from headrace.errors import InvalidConfig


def sent(value: Any, serializer: Any, headers: Any = ()) -> Any:
    return Serializing(None, serializer).record("orders", None, value, headers)[1]


def received(data: bytes, deserializer: Any, headers: Any = ()) -> Any:
    raw = ConsumerRecord("orders", 3, 7, 0, 0, None, data, headers)
    return Deserializing(None, deserializer, None).record(raw).value


class OldStyle:
    def serialize(self, topic: str, value: str) -> bytes:
        return f"{topic}:{value}".encode()

    def deserialize(self, topic: str, data: bytes) -> str:
        return data.decode().removeprefix(f"{topic}:")


class NewStyle:
    def serialize(self, topic: str, headers: list[tuple[str, bytes]], value: str) -> bytes:
        return f"{topic}:{value}:{headers[0][0]}".encode()

    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes) -> str:
        return data.decode() + headers[0][0]


def in_context(value: str, context: SerializationContext) -> bytes:
    context.headers.append(("format", b"text"))
    return f"{context.topic}.{context.field}:{value}".encode()


@pytest.mark.parametrize(
    ("serializer", "expected"),
    [
        (str.encode, b"tea"),
        (lambda value: value.upper().encode(), b"TEA"),
        (in_context, b"orders.value:tea"),
        (OldStyle(), b"orders:tea"),
        (NewStyle(), b"orders:tea:shop"),
        (confluent.StringSerializer("utf_8"), b"tea"),
        ("string", b"tea"),
        (str, b"tea"),
        ("org.apache.kafka.common.serialization.StringSerializer", b"tea"),
        ("json", b'"tea"'),
        (None, "tea"),
    ],
)
def test_a_serializer_is_a_function_or_an_object_or_a_name(serializer: Any, expected: Any) -> None:
    assert sent("tea", serializer, [("shop", b"north")]) == expected
    assert sent("tea", serializer, {"shop": b"north"}) == expected


def test_a_serializer_may_add_headers() -> None:
    given: tuple[tuple[str, bytes], ...] = (("shop", b"north"),)
    assert Serializing(in_context, None).record("t", "k", b"v", given) == (
        b"t.key:k",
        b"v",
        [("shop", b"north"), ("format", b"text")],
    )


@pytest.mark.parametrize(
    ("deserializer", "expected"),
    [
        (bytes.decode, "orders:1"),
        (lambda data, context: (data, context.topic, context.field), (b"orders:1", "orders", "value")),
        (OldStyle(), "1"),
        (NewStyle(), "orders:1shop"),
        (confluent.StringDeserializer("utf_8"), "orders:1"),
        (str, "orders:1"),
        (bytes, b"orders:1"),
    ],
)
def test_a_deserializer_is_a_function_or_an_object_or_a_name(deserializer: Any, expected: Any) -> None:
    assert received(b"orders:1", deserializer, (("shop", b"north"),)) == expected


def test_null_is_given_to_no_serializer() -> None:
    def never(value: object) -> bytes:
        raise AssertionError(value)

    assert Serializing(never, never).record("t", None, None, ()) == (None, None, [])
    raw = ConsumerRecord("t", 0, 0, 0, 0, None, None, ())
    assert Deserializing(never, never, None).record(raw) == raw


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("short", -2, b"\xff\xfe"),
        ("integer", 258, b"\0\0\1\2"),
        ("long", 258, b"\0\0\0\0\0\0\1\2"),
        ("double", 1.5, b"?\xf8\0\0\0\0\0\0"),
        ("float", 1.5, b"?\xc0\0\0"),
        ("boolean", True, b"\1"),
        ("uuid", uuid.UUID(int=7), b"00000000-0000-0000-0000-000000000007"),
        ("bytes", b"\xff", b"\xff"),
    ],
)
def test_numbers_have_the_bytes_of_kafkas_own_serializers(name: str, value: Any, data: bytes) -> None:
    assert sent(value, name) == data
    assert received(data, name) == value
    if name in ("integer", "double"):
        assert getattr(confluent, f"{name.title()}Serializer")()(value) == data


@pytest.mark.parametrize(
    ("serializer", "value", "said"),
    [
        ("integer", 1 << 40, "ValueError: 1099511627776"),
        ("string", 5, "TypeError: 5 is a int, and not text"),
        ("json", object(), "has no form in JSON"),
        (json.dumps, {1, 2}, "TypeError: Object of type set"),
    ],
)
def test_a_value_that_cannot_be_serialized_is_told_with_its_topic(serializer: Any, value: Any, said: str) -> None:
    with pytest.raises(SerializationError, match="orders: the value cannot be serialized") as refused:
        sent(value, serializer)
    assert said in str(refused.value) and refused.value.__cause__ is not None


def test_a_record_that_cannot_be_deserialized_is_told_with_its_place_and_its_bytes() -> None:
    with pytest.raises(
        RecordDeserializationError, match=r"orders-3, offset 7: the value cannot .* seek to 8"
    ) as refused:
        received(b"{", "json")
    error = refused.value
    assert (error.partition, error.offset, error.origin, error.record.value) == (("orders", 3), 7, "value", b"{")
    with pytest.raises(RecordDeserializationError, match="5 bytes, where 4 are expected"):
        received(b"12345", "integer")


class Size(Enum):
    SMALL = "S"


@dataclasses.dataclass
class Item:
    name: str
    price: float | None = None


@dataclasses.dataclass
class Order:
    id: int
    items: list[Item]
    by_name: dict[str, Item] = dataclasses.field(default_factory=dict)


class PydanticOrder(pydantic.BaseModel):
    id: int
    at: datetime


class StructOrder(msgspec.Struct):
    id: int
    item: Item


ORDER = Order(1, [Item("tea", 2.5), Item("bun")], {"x": Item("y", 1.0)})
MODELS = [ORDER, PydanticOrder(id=1, at=datetime(2026, 1, 2, tzinfo=UTC)), StructOrder(1, Item("ü"))]


@pytest.mark.parametrize("value", MODELS, ids=lambda value: type(value).__name__)
def test_models_come_back_equal(value: Any) -> None:
    assert received(sent(value, "json"), type(value)) == value
    assert received(sent(value, type(value)), JsonDeserializer(type(value))) == value


def without(monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    for library in libraries:
        monkeypatch.setitem(sys.modules, library, None)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 53), 1 << 53)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(value=PLAIN)
def test_json_has_the_same_bytes_with_orjson_and_without(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fast = JsonSerializer()
        without(patch, "orjson")
        slow = JsonSerializer()
    try:
        data = fast(value)
    except Exception:  # half of a surrogate pair
        with pytest.raises(UnicodeEncodeError):
            slow(value)
        return
    assert json.loads(slow(value)) == json.loads(data) == value
    if not _has_float(value):  # 1e16 has several forms
        assert slow(value) == data


def _has_float(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, float) or any(map(_has_float, inner))


@pytest.mark.parametrize("is_fast", [True, False])
def test_json_writes_what_people_hold(is_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_fast:
        without(monkeypatch, "orjson")
    value = {
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "id": uuid.UUID(int=7),
        "size": Size.SMALL,
        "price": Decimal("1.50"),
    }
    expected = (
        b'{"at":"2026-01-02T00:00:00+00:00","id":"00000000-0000-0000-0000-000000000007","size":"S","price":"1.50"}'
    )
    assert sent(value, "json") == expected
    assert sent([Item("é")], "json") == '[{"name":"é","price":null}]'.encode()
    assert sent({1, 2}, JsonSerializer(default=sorted)) == b"[1,2]"


def test_dataclasses_need_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "orjson", "msgspec", "pydantic")
    assert received(sent(ORDER, "json"), Order) == ORDER
    with pytest.raises(RecordDeserializationError, match="Item has no colour"):
        received(b'{"name":"tea","colour":"red"}', Item)
    with pytest.raises(RecordDeserializationError, match="missing 1 required positional argument: 'name'"):
        received(b"{}", Item)
    with pytest.raises(InvalidConfig, match=r"needs msgspec or pydantic: install headrace\[models\]"):
        Deserializing(None, JsonDeserializer(list[Order]), None)


def test_msgspec_and_pydantic_check_dataclasses(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("", "msgspec"):
        if library:
            without(monkeypatch, library)
        assert received(b'[{"name":"tea"}]', JsonDeserializer(list[Item])) == [Item("tea")]
        with pytest.raises(RecordDeserializationError, match="ValidationError"):
            received(b'{"name":5}', Item)
