"""Kafka's `sasl.jaas.config`: login modules with their options.

    CLASS required|requisite|sufficient|optional NAME=VALUE ... ;

A value is a word, or stands in single or double quotes with the escapes of Java. Comments are Java's. The class tells
the mechanism; headrace loads no class.

    org.apache.kafka.common.security.plain.PlainLoginModule                  username, password; for servers user_NAME
    org.apache.kafka.common.security.scram.ScramLoginModule                  username, password, tokenauth
    org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule      clientId, clientSecret, scope, extension_X
    com.sun.security.auth.module.Krb5LoginModule                             principal, keyTab, useKeyTab, serviceName

An error names the place. It shows no word that could be a part of a secret.
Source: Kafka's `JaasConfig`, java.io.StreamTokenizer.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.errors import InvalidConfig

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"

_MODULES = {
    "PLAIN": (PLAIN_MODULE,),
    "SCRAM-SHA-256": (SCRAM_MODULE,),
    "SCRAM-SHA-512": (SCRAM_MODULE,),
    "OAUTHBEARER": (OAUTHBEARER_MODULE,),
    "GSSAPI": (KERBEROS_MODULE, "com.ibm.security.auth.module.Krb5LoginModule"),
}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_USER = "user_"

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\r\n]*|/\*.*?\*/)
      | (?P<word>[\w.$\-\u00a0-\U0010ffff]+)
      | (?P<quoted>"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')
      | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """One entry of a configuration."""

    name: str
    """The class."""
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, {sorted(self.options)})"

    @property
    def users(self) -> dict[str, str]:
        """The users of a server: `user_alice="..."` as name and password."""
        return {name[len(_USER) :]: value for name, value in self.options.items() if name.startswith(_USER)}


def parse_jaas(text: str) -> list[LoginModule]:
    """The login modules of a configuration. Raises `InvalidConfig`."""
    tokens = _Tokens(text)
    found = []
    while not tokens.is_at_end:
        found.append(_module(tokens))
    if not found:
        raise InvalidConfig("sasl.jaas.config: it names no login module")
    return found


def login_module(text: str, mechanism: str) -> LoginModule:
    """The one login module of a configuration, which must be of the mechanism. Raises `InvalidConfig`."""
    modules = parse_jaas(text)
    if len(modules) != 1:
        raise InvalidConfig(f"sasl.jaas.config: it has {len(modules)} login modules, but one is expected")
    expected = _MODULES.get(mechanism, ())
    if expected and modules[0].name not in expected:
        raise InvalidConfig(f"sasl.jaas.config: the login module of {mechanism} is {expected[0]}, but another is given")
    return modules[0]


def _module(tokens: "_Tokens") -> LoginModule:
    name = tokens.word("a login module")
    flag = tokens.word(f"one of {', '.join(_FLAGS)}")
    if flag.lower() not in _FLAGS:
        raise tokens.error(f"one of {', '.join(_FLAGS)} is expected behind the login module")
    options: dict[str, str] = {}
    while not tokens.takes(";"):
        option = tokens.word("an option, or a semicolon at the end,")
        if not tokens.takes("="):
            raise tokens.error("an option has no value: a = is expected behind it (quote a value with spaces)")
        options[option] = tokens.value(option)
    return LoginModule(name, options)


class _Tokens:
    """Words, values and signs, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        for kind, token, place in _scan(text):
            if kind == "other":
                raise self._error_at(
                    place, "a quote that does not end" if token in "\"'" else "an unexpected character"
                )
            self._tokens.append((kind, token, place))
        self._next = 0

    @property
    def is_at_end(self) -> bool:
        return self._next == len(self._tokens)

    def takes(self, sign: str) -> bool:
        """Whether the next token is this sign, which is then taken."""
        if self.is_at_end or self._tokens[self._next][:2] != ("sign", sign):
            return False
        self._next += 1
        return True

    def word(self, what: str) -> str:
        kind, token, _ = self._take(what)
        if kind == "sign":
            raise self.error(f"{what} is expected here")
        return token

    def value(self, option: str) -> str:
        if not self.is_at_end and self._tokens[self._next][0] == "sign":
            raise self.error(f"option {option!r:.100} has no value")
        return self._take(f"a value of option {option!r:.100}")[1]

    def _take(self, what: str) -> tuple[str, str, int]:
        if self.is_at_end:
            end = " (a module ends with a semicolon)" if self._tokens else ""
            raise InvalidConfig(f"sasl.jaas.config: it ends where {what} is expected{end}")
        self._next += 1
        return self._tokens[self._next - 1]

    def error(self, what: str) -> InvalidConfig:
        return self._error_at(self._tokens[max(0, self._next - 1)][2], what)

    def _error_at(self, place: int, what: str) -> InvalidConfig:
        return InvalidConfig(f"sasl.jaas.config: at character {place + 1}: {what}")


def _scan(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and place of each token; of kind `other` where there is none."""
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            yield "other", text[place], place
            return
        kind, token = found.lastgroup, found[0]
        if kind == "quoted":
            yield "quoted", _ESCAPE.sub(_unescaped, token[1:-1]), place
        elif kind is not None and kind != "space":
            yield kind, token, place
        place = found.end()


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPED.get(text, text)
