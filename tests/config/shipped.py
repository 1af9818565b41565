"""What is set in the server.properties that releases ship for ZooKeeper mode: the same keys and values."""

SHIPPED_3_9 = {
    "broker.id": "0",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kafka-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.retention.check.interval.ms": "300000",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "18000",
    "group.initial.rebalance.delay.ms": "0",
}
SHIPPED_2_8 = {**SHIPPED_3_9, "log.segment.bytes": "1073741824"}
CONFLUENT = {
    **SHIPPED_3_9,
    "log.dirs": "/var/lib/kafka",
    "metric.reporters": "io.confluent.metrics.reporter.ConfluentMetricsReporter",
    "confluent.metrics.reporter.bootstrap.servers": "localhost:9092",
    "confluent.metrics.reporter.topic.replicas": "1",
    "confluent.support.metrics.enable": "true",
    "confluent.support.customer.id": "anonymous",
    "confluent.license.topic.replication.factor": "1",
    "confluent.metadata.topic.replication.factor": "1",
    "confluent.security.event.logger.exporter.kafka.topic.replicas": "1",
    "confluent.balancer.enable": "true",
    "confluent.balancer.topic.replication.factor": "1",
}


def as_file(properties: dict[str, str]) -> str:
    """A file as it is shipped: with comments, and settings in them that are not set."""
    lines = ["# see the documentation for what each means", "", "#listeners=PLAINTEXT://:9092"]
    for name, text in properties.items():
        lines += ["", f"# {name} is explained here,", "#  over several lines", f"{name}={text}"]
    return "\n".join([*lines, "", "#log.flush.interval.messages=10000", ""])
