"""The principal of a TLS client: the subject of its certificate as Java writes it, and `ssl.principal.mapping.rules`.

    rules     RULE:pattern/replacement/[L|U], RULE:..., DEFAULT        the first rule whose pattern matches decides
    pattern   a regular expression that the whole subject has to match
    $1        in the replacement: the group of the pattern; \\$ and \\\\ are the characters

    RULE:^CN=([^,]+),.*$/$1/L,DEFAULT      CN=Alice,OU=Sales,O=Example  ->  alice

A subject that no rule matches is an error, as in Apache Kafka: the client is refused. Patterns are of RE2, which takes
linear time; Java's look-around and back-references do not exist there. Source: Kafka's SslPrincipalMapper and
DefaultKafkaPrincipalBuilder, Java's X500Principal.getName (RFC 2253).
"""

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import InvalidConfig
from headrace.security.replacements import Pattern, filled

if TYPE_CHECKING:
    from cryptography import x509

DEFAULT_RULES = "DEFAULT"

_SPLIT = re.compile(r"\s*(DEFAULT|RULE:(?:\\.|[^\\/])*/(?:\\.|[^\\/])*/[LU]?)\s*(?:,\s*|$)")

_NAMES = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O", "2.5.4.11": "OU",
    "2.5.4.9": "STREET", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
"""The attributes that have a name in RFC 2253. Others are written as their object identifier and encoding."""

_STRING_TAGS = frozenset({12, 19, 20, 22, 27, 30})  # UTF8, Printable, T61, IA5, General and BMP strings
_ENCODINGS = {20: "latin-1", 28: "utf-32-be", 30: "utf-16-be"}
_ESCAPED = frozenset(',=+<>#;"\\')


class NoRuleMatches(Exception):
    """A subject that none of the rules matches."""


class _Rule(NamedTuple):
    pattern: Pattern | None
    """None: DEFAULT."""
    replacement: str
    case: str


class SslPrincipals:
    """The mapping of subjects to names."""

    def __init__(self, rules: str) -> None:
        """Raises `InvalidConfig` for rules that cannot be parsed."""
        self._rules = _parsed(rules.strip() or DEFAULT_RULES)

    def name_of(self, subject: str) -> str:
        """The name of a subject. Raises `NoRuleMatches`."""
        for rule in self._rules:
            if rule.pattern is None:
                return subject
            if rule.pattern.fullmatch(subject) is not None:
                # Java replaces every match: also the empty one that `.*` has after the first.
                name = rule.pattern.sub(partial(filled, rule.replacement, rule.pattern.groups), subject)
                return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
        raise NoRuleMatches(f"no rule of ssl.principal.mapping.rules applies to {subject}")


def _parsed(text: str) -> tuple[_Rule, ...]:
    found, at = [], 0
    while at < len(text):
        match = _SPLIT.match(text, at)
        if match is None:
            raise InvalidConfig(f"ssl.principal.mapping.rules: there is no rule at {text[at:]!r}")
        found.append(_rule(match[1]))
        at = match.end()
    return tuple(found)


def _rule(text: str) -> _Rule:
    if text == DEFAULT_RULES:
        return _Rule(None, "", "")
    pattern, replacement, case = _parts(text.removeprefix("RULE:"))
    import re2  # only brokers with rules pay for the import

    try:
        options = re2.Options()
        options.log_errors = False
        return _Rule(re2.compile(pattern, options), replacement, case)
    except re2.error as error:
        raise InvalidConfig(f"ssl.principal.mapping.rules: {pattern!r} is no regular expression: {error}") from None


def _parts(text: str) -> tuple[str, str, str]:
    """Pattern, replacement and case of a rule. A slash within the first two has a backslash before it."""
    parts = re.findall(r"((?:\\.|[^\\/])*)/", text)
    return parts[0], parts[1], text.rpartition("/")[2]


def java_name(name: "x509.Name") -> str:
    """A distinguished name as `X500Principal.getName()` of Java writes it: RFC 2253, the last attribute first."""
    return ",".join("+".join(_attribute(each) for each in rdn) for rdn in reversed(name.rdns))


def _attribute(attribute: "x509.NameAttribute[str | bytes]") -> str:
    identifier, tag = attribute.oid.dotted_string, attribute._type.value
    value = attribute.value
    data = value if isinstance(value, bytes) else value.encode(_ENCODINGS.get(tag, "utf-8"), "replace")
    known = _NAMES.get(identifier)
    if known is None or tag not in _STRING_TAGS:
        return f"{known or identifier}=#{_encoded(tag, data).hex()}"
    return f"{known}={_escaped(data.decode('utf-8', 'replace'))}"  # Java takes every string for UTF-8


def _escaped(value: str) -> str:
    """The value with the escapes of Java's AVA.toRFC2253String: of special characters, and of blanks at both ends."""
    text = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in value)
    inner = text.strip(" \r")
    if not inner:
        return "".join(f"\\{each}" for each in text)
    start = text.index(inner)
    left, right = text[:start], text[start + len(inner) :]
    return "".join(f"\\{each}" for each in left) + inner + "".join(f"\\{each}" for each in right)


def _encoded(tag: int, data: bytes) -> bytes:
    """The DER encoding of a value."""
    size = len(data)
    if size < 0x80:
        return bytes([tag, size]) + data
    width = (size.bit_length() + 7) // 8
    return bytes([tag, 0x80 | width]) + size.to_bytes(width, "big") + data
