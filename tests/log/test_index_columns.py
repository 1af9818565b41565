"""The columns of an index take the same entries compiled and uncompiled, and pack them as the file has them."""

import random
from array import array
from struct import Struct
from types import ModuleType
from typing import Any

import pytest

from headrace.log.segment import index_columns
from headrace.log.segment.index_columns import WRITE_BYTES
from tests.uncompiled import uncompiled

FORMS = pytest.mark.parametrize("form", [index_columns, uncompiled(index_columns)], ids=["compiled", "uncompiled"])
KINDS = pytest.mark.parametrize(("entry", "key_type"), [(Struct(">ii"), "i"), (Struct(">qi"), "q")], ids=["i", "q"])
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


def empty(form: ModuleType, entry: Struct, key_type: str) -> Any:
    return form.IndexColumns(7, 1000, entry, key_type)


@FORMS
@KINDS
def test_ascending_keys_are_kept_and_packed(form: ModuleType, entry: Struct, key_type: str) -> None:
    chance, columns = random.Random(3), empty(form, entry, key_type)
    keys, values = array(key_type), array("i")
    key, value, waiting = chance.randrange(3), 0, 0
    for _ in range(3000):
        is_new = not keys or key > keys[-1]
        if is_new:
            keys.append(key)
            values.append(value)
            waiting += entry.size
        assert columns.put(key, value) == (is_new and waiting >= WRITE_BYTES)
        if waiting >= WRITE_BYTES and is_new:
            assert columns.unwritten == b"".join(map(entry.pack, keys, values))[-waiting:]
            columns.unwritten.clear()
            waiting = 0
        key += chance.choice((-3, 0, 1, 2, 250))
        key, value = max(key, 0), value + chance.randrange(9)
    assert (columns.keys, columns.values) == (keys, values)
    assert (columns.keys.typecode, columns.values.typecode) == (key_type, "i")


@FORMS
@KINDS
def test_the_largest_entry_fits_and_no_larger_one(form: ModuleType, entry: Struct, key_type: str) -> None:
    largest = INT32_MAX if key_type == "i" else INT64_MAX
    columns = empty(form, entry, key_type)
    columns.put(0, -INT32_MAX - 1)
    columns.put(largest, INT32_MAX)
    assert columns.unwritten == entry.pack(0, -INT32_MAX - 1) + entry.pack(largest, INT32_MAX)
    for key, value in ((1, INT32_MAX + 1), (1, -INT32_MAX - 2), (largest + 1, 1)):
        with pytest.raises(OverflowError):
            empty(form, entry, key_type).put(key, value)


@FORMS
@KINDS
def test_empty_columns_are_shared_and_never_written_to(form: ModuleType, entry: Struct, key_type: str) -> None:
    one, other = empty(form, entry, key_type), empty(form, entry, key_type)
    assert one.keys is other.keys
    assert one.unwritten is other.unwritten
    one.put(1, 2)
    assert (list(one.keys), list(one.values), bytes(one.unwritten)) == ([1], [2], entry.pack(1, 2))
    assert (len(other.keys), len(other.values), len(other.unwritten)) == (0, 0, 0)
