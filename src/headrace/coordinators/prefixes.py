"""What a name has before its first dot: the instance, if there is one of the name."""


def prefix_of(name: str) -> str:
    """The part before the first dot, and the dot; empty for a name without one."""
    before, dot, _ = name.partition(".")
    return before + dot if dot else ""
