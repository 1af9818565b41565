"""Records for the tests of this directory, and the same as Apache Kafka built them."""

import importlib.util
import json
import random
from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st

from headrace.records.codecs.compression import Codec
from headrace.records.format2 import kernel
from headrace.records.format2.batch import Record

GOLDEN = json.loads((Path(__file__).parent / "golden" / "batches.json").read_text())
"""What golden/MakeBatches.java wrote with Apache Kafka 3.9.2: batches and markers in hex, hashes of keys."""

CODECS = list(Codec)


def golden_batch(name: str) -> bytearray:
    """One of Kafka's batches, by codec, or `commit` or `abort`."""
    return bytearray.fromhex(GOLDEN[name])


def golden_records() -> list[Record]:
    """The records of each golden batch: 300 from offset 1000, some without key, value or header value."""
    return [_golden_record(i) for i in range(300)]


def _golden_record(i: int) -> Record:
    count = i % 3 if i % 4 == 0 else 0
    return Record(
        1000 + i,
        1_700_000_000_000 + (i * 13 if i % 2 == 0 else -i),
        None if i % 3 == 0 else f"key-{i}".encode(),
        None if i % 7 == 0 else f"value-{i % 50}".encode() * (i % 5),
        tuple((f"name-{h}", None if h == 1 else f"header-{i}".encode()) for h in range(count)),
    )


def many_records(count: int, seed: int = 1) -> list[Record]:
    """Records of all shapes, in more bytes than one compressed block takes."""
    rng = random.Random(seed)
    return [
        Record(
            i,
            1_700_000_000_000 + rng.randrange(-(10**6), 10**6),
            None if rng.random() < 0.2 else rng.randbytes(rng.randrange(20)),
            None if rng.random() < 0.1 else b"some words, over and over; " * rng.randrange(12) + rng.randbytes(5),
            tuple((f"h{n}", rng.randbytes(3) if n else None) for n in range(rng.randrange(3))),
        )
        for i in range(count)
    ]


def uncompiled_kernel() -> ModuleType:
    """The kernel's source run as plain Python, beside the compiled one."""
    return uncompiled("kernel")


def uncompiled(name: str) -> ModuleType:
    """The source of a compiled module of `headrace.records` run as plain Python, beside it."""
    source = Path(kernel.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"headrace_uncompiled_{name}", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


timestamps = st.integers(-(1 << 62), (1 << 62) - 1)
maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3).map(tuple)
records = st.lists(
    st.builds(Record, st.just(0), timestamps, maybe_bytes, maybe_bytes, headers), min_size=1, max_size=20
).map(lambda rows: [row._replace(offset=i) for i, row in enumerate(rows)])
