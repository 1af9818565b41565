"""The names of pyarrow's classes for annotations. Each is Any, because pyarrow has no types of its own.

A type checker calls what an untyped library returns unknown, and its strict modes complain where it is used. Any says
the same without the complaint. Programs that want more annotate with what pyarrow's stubs have.
"""

from typing import Any, TypeAlias

Array: TypeAlias = Any
BinaryArray: TypeAlias = Any
ChunkedArray: TypeAlias = Any
DataType: TypeAlias = Any
Field: TypeAlias = Any
RecordBatch: TypeAlias = Any
Schema: TypeAlias = Any
Table: TypeAlias = Any
