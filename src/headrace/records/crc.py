"""CRC-32C (Castagnoli), the checksum of a batch of format 2.

Computed by the processor's own instruction where it has one (about 30 GB/s), from `attributes` to the batch's end:
what a broker sets, base offset and leader epoch, lies before it. Source: Kafka's DefaultRecordBatch; KIP-98.

The package `crc32c` reads its own version when it is imported, which drags in `importlib.metadata`, `email` and
`zipfile`: 40 ms of a broker's start for nothing. Its one function is taken from the extension module beside that.
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
"""The checksum of a buffer, an unsigned 32-bit number."""
