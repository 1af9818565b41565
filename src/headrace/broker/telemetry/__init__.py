"""Metrics that clients push (KIP-714): subscriptions, client instances, the payload's decoder, and what was pushed.

Pure but for `service`, which the handlers of GetTelemetrySubscriptions and PushTelemetry use. Begin with `service`.
Imported at the first request: a broker starts without it.
"""
