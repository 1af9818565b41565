"""The text of a share partition, `group:topic id:partition`: FindCoordinator's key, whose hash chooses the coordinator.

The topic id is URL-safe base64 without padding. The text is read from its end, since a group id may have colons.
Source: Kafka's `SharePartitionKey`.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from headrace.coordinators.share_state.persister import SharePartitionKey

_TOPIC_ID_CHARS = 22
_INT32 = 1 << 31


def key_text(key: SharePartitionKey) -> str:
    """The text of a share partition."""
    return f"{key.group_id}:{urlsafe_b64encode(key.topic_id).rstrip(b'=').decode('ascii')}:{key.partition}"


def read_key_text(text: str) -> SharePartitionKey:
    """The share partition of a text. Raises ValueError, which says what is wrong."""
    parts = text.rsplit(":", 2)
    if len(parts) < 3:
        raise ValueError(f"{text!r} is not group:topicId:partition")
    group_id, topic, number = parts
    if not group_id.strip():
        raise ValueError(f"the group id of {text!r} is empty")
    try:
        topic_id = urlsafe_b64decode(topic + "==") if len(topic) == _TOPIC_ID_CHARS else b""
    except ValueError:
        topic_id = b""
    if len(topic_id) != 16:
        raise ValueError(f"{topic!r} is not a topic id of {_TOPIC_ID_CHARS} characters")
    digits = number[1:] if number[:1] in ("-", "+") else number
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and -_INT32 <= int(number) < _INT32):
        raise ValueError(f"{number!r} is not a partition")
    return SharePartitionKey(group_id, topic_id, int(number))
