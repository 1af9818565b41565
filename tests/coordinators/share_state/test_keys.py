"""The text of a share partition."""

import pytest

from headrace.coordinators.groups.partitioning import partition_for
from headrace.coordinators.share_state.keys import key_text, read_key_text
from headrace.coordinators.share_state.persister import SharePartitionKey

TOPIC_ID = bytes(range(16))
TEXT = "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize("group", ["q", "a:b:c", ":", "x:0", "grün"])
@pytest.mark.parametrize("partition", [0, 7, -1, 2**31 - 1])
def test_a_text_is_read_as_it_was_written(group: str, partition: int) -> None:
    key = SharePartitionKey(group, TOPIC_ID, partition)
    assert key_text(key) == f"{group}:{TEXT}:{partition}"
    assert read_key_text(key_text(key)) == key


@pytest.mark.parametrize(
    "text", ["", "q", f"q:{TEXT}", f":{TEXT}:0", f" :{TEXT}:0", f"q:{TEXT}:x", f"q:{TEXT}:²", f"q:{TEXT[1:]}:0",
             f"q:{TEXT}:{2**31}", f"q:{TEXT}:", f"q:{'ü' * 22}:0", f"q:{TEXT}:{'9' * 5000}"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_key_text(text)


def test_the_partition_is_that_of_javas_hash() -> None:
    assert partition_for(f"queue:{TEXT}:3", 50) == abs(_java_hash(f"queue:{TEXT}:3")) % 50


def _java_hash(text: str) -> int:
    value = 0
    for each in text:
        value = (31 * value + ord(each)) % 2**32
    return value - 2**32 if value >= 2**31 else value
