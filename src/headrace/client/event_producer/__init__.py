"""The producer of Kafka 0.7 by its interfaces: partitioner, encoder, event handler, callback handler.

    EventProducer ── sync: encode, send, wait
                  └─ async: queue ─▶ its thread: batches ─▶ event handler ─▶ Producer

Begin with `event_producer`; `send_queue` has the asynchronous half, `handlers` the interfaces. `broker_discovery` finds
the brokers in ZooKeeper and needs the extra `zookeeper` (kazoo). May know `client.producer`, and
`client.zookeeper_consumer` for its session.
"""
