"""The mapping from groups to partitions of __consumer_offsets, the same as in Kafka's brokers and tools.

    partition = abs(String.hashCode(group_id)) % partitions          abs(-2**31) counts as 0

`String.hashCode` is over UTF-16 code units, so a character beyond the basic plane counts as two surrogates.
Source: Kafka's `GroupMetadataManager.partitionFor` and `Utils.abs`.
"""

from struct import unpack


def java_string_hash(text: str) -> int:
    """`text.hashCode()` as Java computes it: int32."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of __consumer_offsets whose leader coordinates the group."""
    value = java_string_hash(group_id)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
