"""The use cases of activity streams as Spark pipelines: read one, run it, copy it.

    site.py        the simulated site: its events, abuse and incidents (abuse.py)
    events.py      reads topics as columns, without late and doubled events
    operations.py  percentiles of services, alerts that do not flap, a live page (operations_page.py)
    security.py    crawlers, API abuse, spamming, log-in attacks, and the list of a rate limiter (rate_limiter.py)
    relevance.py   counts and click-through rates of items, and a ranking that follows the last minutes
    news_feed.py   the newest posts of those whom a member follows, fanned out, in a compacted topic
    reporting.py   hourly loads into lake tables, and reports by SQL that can be made again from a point in time
    running.py     sessions and queries
    plain/         what each pipeline must find, in plain Python
    __main__.py    the commands

The documentation's page of pipelines shows them. May know Spark and the client. Begin with `events`, then `operations`.
"""
