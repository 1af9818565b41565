"""Our multi of ZooKeeper beside kazoo's: the same bytes, and the same results of the same bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metastore.store import Check, Create, Delete, Op, Set

kazoo = pytest.importorskip("kazoo")

from kazoo.exceptions import RolledBackError, RuntimeInconsistency  # noqa: E402
from kazoo.protocol import serialization as theirs  # noqa: E402
from kazoo.protocol.states import ZnodeStat  # noqa: E402

from headrace.metastore.zookeeper.access_lists import AccessLists  # noqa: E402
from headrace.metastore.zookeeper.multi_write import MultiWrite  # noqa: E402

PATHS = st.lists(st.sampled_from(["a", "é", "config", "users"]), min_size=1).map(lambda parts: "/" + "/".join(parts))
VERSIONS = st.integers(-1, 2**31 - 1)
OPS: st.SearchStrategy[list[Op]] = st.lists(
    st.one_of(
        st.builds(Create, PATHS, st.binary(max_size=20), st.booleans(), st.booleans()),
        st.builds(Set, PATHS, st.binary(max_size=20), VERSIONS),
        st.builds(Delete, PATHS, VERSIONS),
        st.builds(Check, PATHS, VERSIONS),
    )
)


def of_kazoo(op: Op, rights: AccessLists) -> Any:
    match op:
        case Create(path, data, ephemeral, sequential):
            return theirs.Create(path, data or None, rights.of(path), int(ephemeral) | int(sequential) << 1)
        case Set(path, data, version):
            return theirs.SetData(path, data, version)
        case Delete(path, version):
            return theirs.Delete(path, version)
        case Check(path, version):
            return theirs.CheckVersion(path, version)


@given(OPS, st.booleans())
def test_has_the_bytes_of_kazoo(ops: list[Op], is_set: bool) -> None:
    rights = AccessLists("", is_set)
    expected = theirs.Transaction([of_kazoo(op, rights) for op in ops])
    ours = MultiWrite(ops, rights.of)
    assert ours.serialize() == bytes(expected.serialize())
    assert ours.type == expected.type


def header(kind: int, error: int = 0) -> bytes:
    return bytes(theirs.MultiHeader(kind, kind == -1 and error == -1, error).serialize())


@given(OPS)
def test_reads_the_results_that_kazoo_reads(ops: list[Op]) -> None:
    answer = b"before"
    for number, op in enumerate(ops):
        match op:
            case Create(path):
                answer += header(1) + theirs.write_string(path)
            case Set():
                answer += header(5) + theirs.stat_struct.pack(*range(number, number + 11))
            case Delete():
                answer += header(2)
            case Check():
                answer += header(13)
    answer += header(-1, -1)
    expected = theirs.Transaction.deserialize(answer, 6)
    assert MultiWrite.deserialize(answer, 6) == [
        each.version if isinstance(each, ZnodeStat) else None if each is True else each for each in expected
    ]


def test_reads_what_was_refused() -> None:
    answer = b"".join(header(-1, error) + theirs.int_struct.pack(error) for error in (0, -103, -2)) + header(-1, -1)
    kinds = [type(each) for each in theirs.Transaction.deserialize(answer, 0)]
    assert kinds[0] is RolledBackError
    assert kinds[2] is RuntimeInconsistency
    assert [type(each) for each in MultiWrite.deserialize(answer, 0)] == kinds
