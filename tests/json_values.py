"""What JSON values become in columns `origin` (text), `delay` (double), `n` (a struct of `a`, int, and `b`, text) and
`Größe` (int), by every decoder that the project has.
"""

from typing import TypeAlias

Columns: TypeAlias = "tuple[str | None, float | None, tuple[int | None, str | None] | None, int | None]"
NONE: Columns = (None, None, None, None)

WHOLE: dict[bytes, Columns] = {
    b'{"origin":"EWR","delay":2.5}': ("EWR", 2.5, None, None),
    b"{}": NONE,
    b' {"origin":"a"}\n': ("a", None, None, None),
    b'{"origin":"a","extra":[1]}': ("a", None, None, None),
    b'{"n":{"a":1,"b":"x"}}': (None, None, (1, "x"), None),
    '{"Größe":7}'.encode(): (None, None, None, 7),
    b'{"origin":"\\"Origin\\":"}': ('"Origin":', None, None, None),
}
"""Values that are in the columns, and nowhere else."""

KEPT: dict[bytes, Columns] = {
    b"": NONE,
    b" ": NONE,
    b"null": NONE,
    b"not JSON": NONE,
    b"5": NONE,
    b"[]": NONE,
    b'[{"origin":"a"}]': NONE,
    b'{"origin":"a"': NONE,
    b'{"origin":"a"}{"origin":"b"}': NONE,
    b'{"origin":"a"} {"origin":"b"}': NONE,
    b'{"origin":"a"},{"origin":"b"}': NONE,
    b'{"origin":"a"},"x":{"origin":"b"}': NONE,
    b'{"origin":"a"} trailing': NONE,
    b'{"origin":"a"}}': NONE,
    b'{"origin":"a"}] x': NONE,
    b'{"origin":"a"}} x': NONE,
    b'{"origin":"\xff"}': NONE,
    b'\xed\xa0\x80{"origin":"a"}': NONE,
    b'{"origin":"a","delay":"late"}': ("a", None, None, None),
    b'{"origin":"a","n":5}': ("a", None, None, None),
    b'{"Origin":"a","delay":1}': (None, 1.0, None, None),
    b'{"n":{"A":1,"b":"x"}}': (None, None, (None, "x"), None),
    '{"GRÖSSE":1,"GRÖßE":7}'.encode(): NONE,
}
"""Values that are in `corrupt_value`, whatever of them is in the columns."""
