"""Kerberos principals, and the names that they have here: `sasl.kerberos.principal.to.local.rules`.

    alice@EXAMPLE.COM    kafka/broker1.example.com@EXAMPLE.COM       name [/host] @realm

    DEFAULT                                      the name of a principal of the default realm, whatever its host
    RULE:[n:format](match)s/from/to/g/L          n = 1 or 2: principals without and with a host
        format     $0 is the realm, $1 the name, $2 the host
        (match)    the rule applies if the whole formatted text matches; may be absent
        s/from/to/ replaces the first match, with g each one; may be absent
        /L /U      in small letters, in capitals

    RULE:[1:$1@$0](.*@SALES\\.EXAMPLE\\.COM)s/@.*//,DEFAULT        alice@SALES.EXAMPLE.COM  ->  alice

The first rule that applies decides. Its result must have neither / nor @. A principal without a name is refused, and
so is one to which no rule applies, as in Apache Kafka. Commas separate rules, so there is none within one. Patterns are
of RE2, which takes linear time. Pure. Source: Kafka's KerberosName, KerberosShortNamer, KerberosRule.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from headrace.errors import InvalidConfig
from headrace.security.replacements import Pattern, filled, illegal_part

SETTING = "sasl.kerberos.principal.to.local.rules"

_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(r"DEFAULT|RULE:\[(\d*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?")
_PARAMETER = re.compile(r"\$(\d*)", re.ASCII)


class NoName(ValueError):
    """A principal that has no name here."""


class Principal(NamedTuple):
    """A principal of Kerberos. The host is None for a user, and the realm where the text has none."""

    name: str
    host: str | None
    realm: str | None


class _Rule(NamedTuple):
    text: str
    components: int = 0
    """0: DEFAULT."""
    format: str = ""
    match: Pattern | None = None
    pattern: Pattern | None = None
    to: str = ""
    most: int = 1
    """How many matches are replaced; 0: each one."""
    case: str = ""


class KerberosNames:
    """The mapping of principals to names."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """`default_realm`: '' if there is none. Raises `InvalidConfig` for rules that cannot be parsed."""
        self._realm = default_realm
        self._rules = [_parsed(rule) for rule in rules]

    def name_of(self, principal: str) -> str:
        """The name of a principal. Raises `NoName`."""
        name, host, realm = parse_principal(principal)
        if realm is None:
            return name
        parts = [realm, name] if host is None else [realm, name, host]
        for rule in self._rules:
            found = self._applied(rule, parts)
            if found is None:
                continue
            if "/" in found or "@" in found:
                raise NoName(f"the rule {rule.text} of {SETTING} makes {found!r} of {principal}: a / or @ remains")
            if not found:
                raise NoName(f"the rule {rule.text} of {SETTING} leaves nothing of {principal}")
            return found.lower() if rule.case == "L" else found.upper() if rule.case == "U" else found
        raise NoName(f"no rule of {SETTING} applies to {principal}")

    def _applied(self, rule: _Rule, parts: Sequence[str]) -> str | None:
        """The name that a rule makes of realm, name and host; None if it does not apply."""
        if rule.components == 0:
            return parts[1] if parts[0] == self._realm else None
        if len(parts) - 1 != rule.components:
            return None
        base = _PARAMETER.sub(lambda found: parts[int(found[1])], rule.format)
        if rule.match is not None and rule.match.fullmatch(base) is None:
            return None
        if rule.pattern is None:
            return base
        return rule.pattern.sub(partial(filled, rule.to, rule.pattern.groups), base, rule.most)


def parse_principal(text: str) -> Principal:
    """A principal; a text without @ is a name alone. Raises `NoName`."""
    found = _PRINCIPAL.fullmatch(text)
    if found is not None:
        return Principal(*found.groups())
    if "@" in text:
        raise NoName(f"{text} is not a principal: NAME@REALM or NAME/HOST@REALM")
    return Principal(text, None, None)


def _parsed(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise InvalidConfig(f"{SETTING}: {text!r} is no rule: DEFAULT, or RULE:[n:format](match)s/from/to/g/L")
    if text == "DEFAULT":
        return _Rule(text)
    number, form, match, pattern, to, is_global, case = found.groups()
    components = int(number or 0)
    if components not in (1, 2):
        raise InvalidConfig(f"{SETTING}: {text!r} is for principals of {number or 'no'} parts, which there are not")
    for parameter in _PARAMETER.findall(form):
        if not parameter or int(parameter) > components:
            raise InvalidConfig(f"{SETTING}: ${parameter} in {text!r} is none of $0 to ${components}")
    compiled = None if pattern is None else _compiled(pattern)
    if compiled is not None and (part := illegal_part(to, compiled.groups)):
        raise InvalidConfig(f"{SETTING}: {part!r} in {text!r} is not a group of {pattern!r}")
    count = 0 if is_global else 1
    return _Rule(text, components, form, None if match is None else _compiled(match), compiled, to or "", count, case)


def _compiled(pattern: str) -> Pattern:
    import re2  # only brokers with rules pay for the import

    try:
        options = re2.Options()
        options.log_errors = False
        made: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidConfig(f"{SETTING}: {pattern!r} is no regular expression: {error}") from None
    return made
