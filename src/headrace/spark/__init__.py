"""The Spark integration: sources, sinks and the load job, in PySpark, without a jar.

    source/          batch and streaming readers; `options` parses what a user may write, `offsets` plans ranges
    sink/            the writers; `sink_marks` makes a repeated task write nothing twice
    load/            the exactly-once load job and its command; its table is `headrace.lake.delta`
    option_values.py parser of option values
    progress.py      commits the progress of a stream as the offsets of a consumer group
    whole_topic.py   `headrace.spark.topic`: one DataFrame over a lake table and the live topic
    session.py       a local session; `java.py` finds or prepares its Java

May know `headrace.client`, `headrace.lake`, `headrace.offline` and PySpark. Begin with `source/source.py`.
Spark finds the format "headrace" through `pyspark_headrace`, beside this package. Importing this package imports
nothing.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """`topic` of `whole_topic`, imported when it is asked for."""
    if name == "topic":
        from headrace.spark.whole_topic import topic

        return topic
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
