"""The decoder generator: writes the straight-line Python source that decodes one message at one version.

A run of fixed-size fields, together with the length prefix (or the first byte of it) of the field behind it, becomes
one struct call that assigns straight to attributes; arrays become loops, structs are inlined. For ListOffsets v1:

    def decode(buf, pos):
        size = len(buf)
        left = 1000000
        o0 = new(c_)
        o0.isolation_level = 0
        o0.replica_id, n, = u_ii(buf, pos); pos += 8
        ...

Bounds: a read past the end raises (IndexError, struct.error). A short slice moves `pos` past the end, which the next
read or the last check detects. A count is compared with the bytes that remain before anything is allocated. All arrays
of a message together may have `elements_max` elements, because an object takes many times the memory of its encoding.
Tagged fields count as elements, and a structure may have `TAGGED_FIELDS_MAX` of them.

In slices, the function is a generator, which yields after every `ELEMENTS_PER_SLICE` elements and returns the same.
"""

from collections.abc import Callable
from struct import calcsize

from headrace.limits import (
    ELEMENTS_PER_ADMIN_REQUEST_MAX,
    ELEMENTS_PER_MESSAGE_MAX,
    ELEMENTS_PER_PRODUCE_MAX,
    ELEMENTS_PER_REQUEST_MAX,
    ELEMENTS_PER_SLICE,
    MEMBERS_PER_REQUEST_MAX,
    NAMES_PER_REQUEST_MAX,
    TAGGED_FIELDS_MAX,
)
from headrace.protocol.codec.schema import Field, MessageSchema
from headrace.protocol.codec.wire import FIXED, SMALL, name_of

CONTROL_REQUESTS = ("AlterPartitionRequest", "LeaderAndIsrRequest", "StopReplicaRequest", "UpdateMetadataRequest")
"""Requests that only brokers send. They may name every partition of a cluster, with several elements each."""

_ELEMENTS_MAX = {
    "AlterConfigsRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "AlterPartitionReassignmentsRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "AlterReplicaLogDirsRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "CreateAclsRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "CreatePartitionsRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "CreateTopicsRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "DeleteAclsRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "DeleteTopicsRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "DescribeConfigsRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "DescribeTransactionsRequest": MEMBERS_PER_REQUEST_MAX,
    "ElectLeadersRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "FindCoordinatorRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "IncrementalAlterConfigsRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "JoinGroupRequest": NAMES_PER_REQUEST_MAX,
    "LeaveGroupRequest": MEMBERS_PER_REQUEST_MAX,
    "ListGroupsRequest": NAMES_PER_REQUEST_MAX,
    "OffsetDeleteRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "ProduceRequest": ELEMENTS_PER_PRODUCE_MAX,
    "SyncGroupRequest": MEMBERS_PER_REQUEST_MAX,
    "TxnOffsetCommitRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
    "WriteTxnMarkersRequest": ELEMENTS_PER_ADMIN_REQUEST_MAX,
}
"""Requests whose elements cost more, or that are handled in one turn of the event loop. No client sends more."""

_TOO_MANY = "more elements and tagged fields than a message may have"


def elements_max(message: MessageSchema) -> int:
    """The limit on the elements of all arrays of a message together."""
    is_asked = message.name.endswith("Request") and message.name not in CONTROL_REQUESTS
    return _ELEMENTS_MAX.get(message.name, ELEMENTS_PER_REQUEST_MAX) if is_asked else ELEMENTS_PER_MESSAGE_MAX


class DecoderSource:
    """Collects the lines; `text()` is the function's source. Names that it uses: see compiler.decoder."""

    def __init__(self, message: MessageSchema, version: int, *, in_slices: bool = False) -> None:
        self._message = message
        self._in_slices = in_slices
        self._version = version
        self._flexible = message.is_flexible(version)
        self._lines: list[str] = []
        self._indent = 1
        self._objects = 0
        self._run: list[tuple[str, str]] = []  # (target, struct code) of the fixed-size fields not yet read
        self.codes: set[str] = set()  # the struct calls that the source needs ...
        self.arrays: set[str] = set()  # ... and the codes of the number arrays

    def text(self) -> str:
        """The whole function."""
        self._struct("")
        self._flush()
        self._line("if pos > size: raise malformed('ends too early')")
        self._line("return o0, pos")
        head = ["def decode(buf, pos):", " size = len(buf)", f" left = {elements_max(self._message)}"]
        if self._in_slices:
            head += [" done = 0", " if 0: yield"]  # a message without arrays needs the yield that makes it a generator
        return "\n".join([*head, *self._lines]) + "\n"

    def _line(self, text: str) -> None:
        self._lines.append(" " * self._indent + text)

    def _flush(self) -> None:
        """One read for the pending run."""
        if not self._run:
            return
        code = "".join(code for _, code in self._run)
        targets = ", ".join(target for target, _ in self._run)
        if code == "B":
            self._line(f"{targets} = buf[pos]; pos += 1")
        else:
            self.codes.add(code)
            self._line(f"{targets}, = u_{name_of(code)}(buf, pos); pos += {calcsize('>' + code)}")
        self._run = []

    def _struct(self, struct: str) -> str:
        """Reads one struct into a fresh local, and returns the local's name."""
        target = f"o{self._objects}"
        self._objects += 1
        self._line(f"{target} = new(c_{struct})")
        fields = self._message.structs[struct]
        for field in fields:
            if self._version not in field.versions or self._version in field.tagged:
                fresh = field.is_array and field.default is not None
                self._line(f"{target}.{field.name} = " + ("[]" if fresh else f"d_{struct}_{field.name}"))
        for field in fields:
            if self._version in field.versions and self._version not in field.tagged:
                self._field(field, f"{target}.{field.name}")
        if self._flexible:
            self._tags(target, [field for field in fields if self._version in field.tagged])
        return target

    def _field(self, field: Field, target: str) -> None:
        """Reads one field into `target`."""
        nullable = self._version in field.nullable
        if field.is_array:
            self._length(field, nullable, "i", lambda: self._array(field, target), target)
        elif field.type in FIXED:
            self._run.append((target, FIXED[field.type]))
        elif field.type in ("string", "bytes", "records"):
            code = "h" if field.type == "string" else "i"
            self._length(field, nullable, code, lambda: self._slice(field.type, target), target)
        elif nullable:
            self._run.append(("n", "b"))
            self._flush()
            absent = (
                "n < 1" if self._version in field.tagged else "n < 0"
            )  # 0 among the tagged, where Kafka has a varint
            self._line(f"if {absent}: {target} = None")
            self._line("else:")
            self._indent += 1
            self._line(f"{target} = {self._inner(field.type)}")
            self._indent -= 1
        else:
            self._flush()
            self._line(f"{target} = {self._struct(field.type)}")

    def _inner(self, struct: str) -> str:
        """A struct inside a block of its own: nothing of it may be read after the block."""
        inner = self._struct(struct)
        self._flush()
        return inner

    def _length(self, field: Field, nullable: bool, code: str, body: Callable[[], None], target: str) -> None:
        """Reads the length into `n`, refuses what is not allowed, and has `body` read n elements or bytes."""
        self._run.append(("n", "B" if self._flexible else code))
        self._flush()
        if self._flexible:
            self._line("if n > 127: n, pos = uvarint(buf, pos, n)")
            self._line("n -= 1")
        if not nullable:
            self._line(f"if n < 0: raise malformed('{field.name}: null or negative length')")
            body()
            return
        if not self._flexible:
            self._line(f"if n < -1: raise malformed('{field.name}: negative length')")
        self._line(f"if n < 0: {target} = None")
        self._line("else:")
        self._indent += 1
        body()
        self._indent -= 1

    def _slice(self, type_: str, target: str) -> None:
        """`n` bytes."""
        form = {"string": ".tobytes().decode()", "bytes": ".tobytes()", "records": ""}[type_]
        self._line(f"end = pos + n; {target} = buf[pos:end]{form}; pos = end")

    def _array(self, field: Field, target: str) -> None:
        """`n` elements."""
        self._line("left -= n")
        self._line(f"if left < 0: raise malformed({_TOO_MANY!r})")
        code = FIXED.get(field.type, "")
        if code and code != "16s":
            width = calcsize(">" + code)
            self.arrays.add(code)
            self._line(f"if n < {SMALL}: {target} = list(us_{name_of(code)}[n](buf, pos))")
            self._line(f"else: {target} = read_numbers('{code}', {width}, n, buf, pos)")
            self._line(f"pos += {width} * n")
            return
        self._line(f"if n > size - pos: raise malformed('{field.name}: more elements than bytes')")
        array = f"a{self._objects}"
        self._line(f"{target} = {array} = []")
        self._line("for _ in range(n):")
        self._indent += 1
        if self._in_slices:
            self._line("done += 1")
            self._line(f"if done % {ELEMENTS_PER_SLICE} == 0: yield")
        if field.is_struct:
            self._line(f"{array}.append({self._inner(field.type)})")
        else:
            self._objects += 1
            self._field(field._replace(is_array=False, nullable=range(0)), "x")
            self._flush()
            self._line(f"{array}.append(x)")
        self._indent -= 1

    def _tags(self, target: str, known: list[Field]) -> None:
        """The tagged section that ends every struct of a flexible version."""
        self._run.append(("n", "B"))
        self._flush()
        if not known:
            self._line("if n:")
            self._indent += 1
            self._line("left -= n")
            self._line(f"if left < 0: raise malformed({_TOO_MANY!r})")
            self._line("pos = skip_tags(buf, pos, n)")
            self._indent -= 1
            return
        stop = f"stop_{target}"
        self._line("if n:")
        self._indent += 1
        self._line(f"if n > {TAGGED_FIELDS_MAX}: raise malformed('more tagged fields than a structure may have')")
        self._line("left -= n")
        self._line(f"if left < 0: raise malformed({_TOO_MANY!r})")
        self._line("for _ in range(n):")
        self._indent += 1
        self._line("tag, pos = read_uvarint(buf, pos); n, pos = read_uvarint(buf, pos)")
        self._line(f"{stop} = pos + n")
        self._line(f"if {stop} > size: raise malformed('tagged field longer than the bytes that remain')")
        for field in known:
            self._line(f"if tag == {field.tag}:")
            self._indent += 1
            self._field(field, f"{target}.{field.name}")
            self._flush()
            self._line(f"if pos != {stop}: raise malformed('{field.name}: tagged field of another size')")
            self._line("continue")
            self._indent -= 1
        self._line(f"pos = {stop}")
        self._indent -= 2
