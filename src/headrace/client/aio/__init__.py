"""The client for asyncio: the threaded one's names, calls and settings, as coroutines.

    from headrace.client import aio

    async with aio.Producer("127.0.0.1:9092") as producer:
        delivery = await producer.send("orders", b"tea")      waits only while the buffer is full
        place = await delivery

    async with aio.Consumer("127.0.0.1:9092", group_id="kitchen") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer: ...

Nothing of the protocol is written twice. Each client drives the threaded one, whose threads do the network's work
while the loop is free, and are gone when the client is closed. Whatever may wait is a coroutine. A send that need not
wait stays on the loop's thread; the records of a batch wake the loop once, and so do those of a poll.

    calls      a thread that runs what may wait: calls in order, completions on the loop
    room       tasks that wait for the full buffer of a producer
    reader     what both consumers have in common     reading   the records on their way to a task
    producer   consumer   share_consumer   admin

May know the threaded clients and asyncio. Begin with `calls`, then `producer` and `reading`.
"""

from headrace.client.aio.admin import Admin
from headrace.client.aio.consumer import Consumer
from headrace.client.aio.producer import Producer
from headrace.client.aio.share_consumer import ShareConsumer

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer"]
