"""What the tests of the asyncio face share: topics, and no thread left over."""

import threading
from collections.abc import Iterator

import pytest

from headrace.client.operations.admin import Admin
from tests.client.brokers import topic_name


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic of two partitions."""
    name = topic_name("aio")
    admin.create_topic(name, 2, 1)
    return name


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Closed clients leave no thread of theirs behind."""
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert not [name for name in left if name.startswith("headrace")]
