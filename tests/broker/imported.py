"""Prints the modules that a broker of one has imported when it is ready. Run with a data directory as its argument."""

import asyncio
import sys

from headrace.broker.app import loop_factory, running
from headrace.broker.options import parse_options


async def _ready(data: str) -> list[str]:
    given = parse_options(["--listen", "127.0.0.1:0", "--data", data])
    assert not isinstance(given, str)
    async with running(given.properties.config):
        return sorted(sys.modules)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        print("\n".join(runner.run(_ready(sys.argv[1]))))
