r"""Which principals may enter an instance by a certificate, a bearer token, a ticket of Kerberos or a delegation token.

Users with a password are the instance's own, since they are stored with its name. A certificate authority, an identity
provider or a realm serves many instances. It vouches for who somebody is, not for where he may go. So an instance names
the principals that may enter.

    CN=alice,OU=acme,O=Example      this one; `User:` before it is left out
    CN=*,OU=acme,O=Example          `*` is any text without comma, plus sign and backslash, which part a certificate's
                                    name: else CN="eve,OU=acme" of another unit, written CN=eve\,OU=acme, would fit
    *                               everybody for whom the authority vouches
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_KIND = "User:"
_ANYBODY = "*"


class Principals:
    """A set of principals."""

    __slots__ = ("_has_all", "_names", "_pattern")

    def __init__(self, patterns: Iterable[str], names: Iterable[str] = ()) -> None:
        """`names`: further ones, in which `*` is a character."""
        given = {each.removeprefix(_KIND) for each in patterns}
        self._has_all = _ANYBODY in given
        self._names = frozenset(
            [each for each in given if "*" not in each] + [each.removeprefix(_KIND) for each in names]
        )
        self._pattern = _compiled(each for each in given if "*" in each and each != _ANYBODY)

    def __contains__(self, name: str) -> bool:
        """Whether a principal, without its type, is one of them."""
        return (
            self._has_all
            or name in self._names
            or (self._pattern is not None and self._pattern.fullmatch(name) is not None)
        )


def _compiled(patterns: Iterable[str]) -> Any:
    """An expression for any of these patterns; None without any."""
    expressions = [r"[^,+\\]*".join(map(re.escape, each.split("*"))) for each in sorted(patterns)]
    if not expressions:
        return None
    import re2  # in linear time, whatever the name; few instances have patterns

    return re2.compile("|".join(expressions))
