# cython: language_level=3, annotation_typing=False, binding=False
"""Whether rules of access or quotas are in force.

The bases of `admission.Admission` and `throttling.Throttling`. Each plain request asks both. Compiled, so that the
shortest ways of requests ask without a look-up; it also runs uncompiled.
"""


class RulesInForce:
    """Rules of access."""

    __slots__ = ("has_rules",)

    def __init__(self) -> None:
        self.has_rules = False
        """Whether rules could refuse a request."""


class QuotasInForce:
    """Quotas of clients."""

    __slots__ = ("is_active",)

    def __init__(self) -> None:
        self.is_active = False
        """Whether any quota on requests is set."""
