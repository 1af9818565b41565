"""Metrics: counters that grow in place while the broker works, rendered for Prometheus only on request.

`traffic` has the counters and imports nothing else, so that the hot path may import it. The other modules read the
broker's services. Begin with `page`, which collects everything; `endpoint` serves it over HTTP.
"""
