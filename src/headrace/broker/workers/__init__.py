"""Several brokers on one host under one supervisor: `headrace serve --workers N`.

`plan` gives each worker its settings, without IO. `supervisor` starts the workers, starts them again when they end, and
stops them; `worker` is one of them, seen from outside. `sync` tells when a worker may be restarted, `metrics_page` puts
the workers' pages together. The workers are brokers like others and do not know each other. May know settings, data
directories and the shared metadata store. Begin with `supervisor`.
"""
