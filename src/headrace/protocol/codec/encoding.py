"""The encoder generator: writes the straight-line Python source that encodes one message at one version.

The function appends pieces to a list that the caller joins. A run of fixed-size fields and the length prefix behind it
is one struct call. For one partition of a Produce response v9:

    for o2 in a1:
        b = o2.error_message
        ...
        if n < 128: add(p_ihqqB(o2.index, o2.error_code, o2.base_offset, o2.log_append_time_ms, n))
        else: add(p_ihqq(o2.index, ...)); add(write_uvarint(n))

A field that the version lacks must hold its default, unless it is ignorable. A tagged field is written when it differs
from its default. A `records` value that is not plain bytes goes into the list as it is, its index into `cuts`.

In slices, the function is a generator, which yields after every `ELEMENTS_PER_SLICE` elements.

An array of `PREPARED` structs may be another sequence than a list, whose `encoded(version)` has the bytes of all its
elements, or is None; then `structs(version)` has the elements as that version can carry them.
"""

from headrace.limits import ELEMENTS_PER_SLICE
from headrace.protocol.codec.schema import Field, MessageSchema
from headrace.protocol.codec.wire import FIXED, SMALL, name_of

PREPARED = frozenset({"LeaderAndIsrPartitionState", "UpdateMetadataPartitionState"})
"""The structs that a controller sends to many brokers alike."""


class EncoderSource:
    """Collects the lines; `text()` is the function's source. Names that it uses: see compiler.encoder."""

    def __init__(self, message: MessageSchema, version: int, *, in_slices: bool = False) -> None:
        self._message = message
        self._in_slices = in_slices
        self._version = version
        self._flexible = message.is_flexible(version)
        self._lines: list[str] = []
        self._indent = 1
        self._objects = 1
        self._run: list[tuple[str, str]] = []  # (expression, struct code) not yet written
        self.codes: set[str] = set()  # the struct calls that the source needs ...
        self.arrays: set[str] = set()  # ... and the codes of the number arrays

    def text(self) -> str:
        """The whole function."""
        self._struct("", "o0")
        self._flush()
        head = ["def encode(o0, out, cuts):", " add = out.append"]
        if self._in_slices:
            head += [" done = 0", " if 0: yield"]  # a message without arrays needs the yield that makes it a generator
        return "\n".join([*head, *self._lines]) + "\n"

    def _line(self, text: str) -> None:
        self._lines.append(" " * self._indent + text)

    def _call(self, run: list[tuple[str, str]]) -> str:
        """The call that writes a run."""
        code = "".join(code for _, code in run)
        if code == "B":  # a length below 128
            return f"add(BYTE[{run[0][0]}])"
        if code == "x":  # no tagged fields
            return "add(BYTE[0])"
        self.codes.add(code)
        return f"add(p_{name_of(code)}({', '.join(value for value, code in run if code != 'x')}))"

    def _flush(self) -> None:
        """One write for the pending run."""
        if self._run:
            self._line(self._call(self._run))
        self._run = []

    def _struct(self, struct: str, source: str) -> None:
        """Writes the struct in local `source`."""
        fields = self._message.structs[struct]
        for field in fields:
            if self._version not in field.versions and not field.ignorable:
                differs = self._differs(field, struct, source)
                self._line(f"if {differs}: raise lost('{field.name}')")
        for field in fields:
            if self._version in field.versions and self._version not in field.tagged:
                self._field(field, f"{source}.{field.name}")
        if self._flexible:
            tagged = [field for field in fields if self._version in field.tagged]
            self._tags(sorted(tagged, key=lambda field: field.tag), struct, source)

    def _differs(self, field: Field, struct: str, source: str) -> str:
        """An expression: the field does not hold its default."""
        value, default = f"{source}.{field.name}", f"d_{struct}_{field.name}"
        if field.default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"({value} or {value} is None)"
        if field.is_struct:
            return f"({value} is not {default} and {value} != {default})"
        return f"{value} != {default}"

    def _field(self, field: Field, value: str) -> None:
        """Writes the value of one field."""
        nullable = self._version in field.nullable
        if field.is_array:
            self._array(field, value, nullable)
        elif field.type in FIXED:
            self._run.append((f"check_uuid({value})" if field.type == "uuid" else value, FIXED[field.type]))
        elif field.type == "records":
            self._records(value, nullable)
        elif field.type in ("string", "bytes"):
            form = "b.encode()" if field.type == "string" else "b"
            self._line(f"b = {value}")
            if nullable:
                self._line(f"if b is None: n = {self._null}; b = b''")
                self._line(f"else: b = {form}; n = {self._count('b')}")
            else:
                self._line(f"b = {form}; n = {self._count('b')}" if form != "b" else f"n = {self._count('b')}")
            self._length("h" if field.type == "string" else "i")
            self._line("add(b)")
        else:
            self._single(field, value, nullable)

    @property
    def _null(self) -> int:
        """The length that says null."""
        return 0 if self._flexible else -1

    def _count(self, local: str) -> str:
        """The length prefix of a local: compact ones are one more than the length."""
        return f"len({local}) + 1" if self._flexible else f"len({local})"

    def _length(self, code: str) -> None:
        """Writes the prefix `n`, together with the pending run."""
        if not self._flexible:
            self._run.append(("n", code))
            self._flush()
            return
        self._line(f"if n < 128: {self._call([*self._run, ('n', 'B')])}")
        before = f"{self._call(self._run)}; " if self._run else ""
        self._line(f"else: {before}add(write_uvarint(n))")
        self._run = []

    def _records(self, value: str, nullable: bool) -> None:
        """Record bytes, plain or as a chunk of their own."""
        self._line(f"b = {value}")
        if nullable:
            self._line(f"if b is None: n = {self._null}; b = b''")
            self._line("else:")
            self._indent += 1
        self._line(f"n = {self._count('b')} if b.__class__ in PLAIN else b.size" + (" + 1" if self._flexible else ""))
        if nullable:
            self._indent -= 1
        self._length("i")
        self._line("if b.__class__ not in PLAIN: cuts.append(len(out))")
        self._line("add(b)")

    def _array(self, field: Field, value: str, nullable: bool) -> None:
        """The count, then the elements."""
        array, element = f"a{self._objects}", f"o{self._objects}"
        self._objects += 1
        self._line(f"{array} = {value}")
        if nullable:
            self._line(f"if {array} is None: n = {self._null}; {array} = ()")
            self._line(f"else: n = {self._count(array)}")
        else:
            self._line(f"n = {self._count(array)}")
        self._length("i")
        code = FIXED.get(field.type, "")
        if code and code != "16s":
            self.arrays.add(code)
            self._line(f"n = len({array})")
            self._line(f"if n < {SMALL}: add(ps_{name_of(code)}[n](*{array}))")
            self._line(f"else: add(write_numbers('{code}', {array}))")
            return
        if field.type in PREPARED:
            self._line(f"if hasattr({array}, 'encoded'):")
            self._line(f" b = {array}.encoded({self._version})")
            self._line(f" if b: add(b); {array} = ()")
            self._line(f" else: {array} = {array}.structs({self._version})")
        self._line(f"for {element} in {array}:")
        self._indent += 1
        if self._in_slices:
            self._line("done += 1")
            self._line(f"if done % {ELEMENTS_PER_SLICE} == 0: yield")
        if field.is_struct:
            self._struct(field.type, element)
        else:
            self._field(field._replace(is_array=False, nullable=range(0)), element)
        self._flush()
        self._indent -= 1

    def _single(self, field: Field, value: str, nullable: bool) -> None:
        """A struct that is a field, with its presence byte where it may be null."""
        local = f"o{self._objects}"
        self._objects += 1
        self._line(f"{local} = {value}")
        if not nullable:
            self._struct(field.type, local)
            return
        self._flush()
        absent = "\\0" if self._version in field.tagged else "\\xff"  # 0 among the tagged, where Kafka has a varint
        self._line(f"if {local} is None: add(b'{absent}')")
        self._line("else:")
        self._indent += 1
        self._run.append(("1", "b"))
        self._struct(field.type, local)
        self._flush()
        self._indent -= 1

    def _tags(self, tagged: list[Field], struct: str, source: str) -> None:
        """The tagged section that ends every struct of a flexible version."""
        if not tagged:
            self._run.append(("", "x"))
            return
        self._flush()
        differ = [self._differs(field, struct, source) for field in tagged]
        self._line(f"if {' or '.join(differ)}:")
        self._indent += 1
        fields, outer = f"t_{source}", f"out_{source}"
        self._line(f"{fields} = []; {outer} = out")
        for field, differs in zip(tagged, differ, strict=True):
            self._line(f"if {differs}:")
            self._indent += 1
            self._line("out = []; add = out.append")
            self._field(field, f"{source}.{field.name}")
            self._flush()
            self._line(f"{fields}.append(({field.tag}, out))")
            self._indent -= 1
        self._line(f"out = {outer}; add = out.append; add(write_tags({fields}))")
        self._indent -= 1
        self._line("else: add(BYTE[0])")
