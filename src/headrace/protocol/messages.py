"""Kafka's messages by name: `messages.ProduceRequest`, `messages.OffsetCommitValue`.

A class is made when its name is first asked for. messages.pyi, which scripts/make_messages_pyi.py writes, tells type
checkers and editors what is here; schema.py describes the notation that both come from.
"""

from headrace.protocol.codec import compiler, schema


def __getattr__(name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        found = compiler.build(schema.load(name))
    except KeyError:
        raise AttributeError(f"no message {name!r}") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(schema.names())
