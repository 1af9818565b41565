"""CRC-32C (Castagnoli), the checksum of a batch of format 2.

It covers the bytes from `attributes` to the batch's end. The base offset and the leader epoch, which a broker sets, are
before them. Where the processor has an instruction for it, it computes about 30 GB/s. Source: Kafka's
DefaultRecordBatch; KIP-98.

The package `crc32c` reads its own version at its import, which imports `importlib.metadata`, `email` and `zipfile`, and
adds 40 ms to a broker's start. So its one function is imported from its extension module.
"""

from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, PathFinder

Checksum = Callable[[bytes | bytearray | memoryview], int]


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    spec = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package else None
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        from crc32c import crc32c as slowly_imported

        return slowly_imported
    module = spec.loader.create_module(spec)
    spec.loader.exec_module(module)
    checksum: Checksum = module.crc32c
    return checksum


crc32c: Checksum = _load()
"""The CRC-32C of a buffer, as an unsigned 32-bit number."""
