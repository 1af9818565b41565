"""headrace: a Kafka-compatible streaming log whose pipelines run on Spark."""

__version__ = "0.1.0"
