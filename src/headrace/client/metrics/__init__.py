"""What a client measures of itself, by Kafka's names. May know `headrace.client.core` and the protocol.

    meters      pure: sums, averages and maxima, since the beginning and of the last minute
    registry    the values of a client by group and name; what `metrics()` returns
    network     connections and requests     producing, consuming    what a producer and a consumer add
    client_metrics              what both have
    telemetry   the push of values to the brokers (KIP-714): a thread
    telemetry_session, otlp     pure: what is pushed when, and its bytes

A client counts by request, batch and fetch, never by record, so that nobody pays for metrics that nobody reads.
Begin with `registry`.
"""
