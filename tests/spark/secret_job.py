"""Reads and writes a secured topic with Spark, and prints everything that Spark and the options print about it.

    python secret_job.py DIRECTORY      options as a JSON object on stdin: of a user, with its password in them

Event logs go to DIRECTORY/events, checkpoints to DIRECTORY/checkpoint. `connector.jars`, if given, are the jars of
Spark's own connector, which then reads the same topic with the same options.
"""

import json
import sys
from pathlib import Path

from headrace.spark.session import session
from headrace.spark.sink.sink_options import parse_sink_options
from headrace.spark.source.options import parse_options
from headrace.spark.source.source import BatchReader


def main() -> None:
    directory, options = Path(sys.argv[1]), json.load(sys.stdin)
    jars = options.pop("connector.jars", "")
    (directory / "events").mkdir(parents=True)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (directory / "events").as_uri(),
        **({"spark.jars": jars} if jars else {}),
    }
    spark = session("secrets", master="local[2]", settings=settings, short_lived=True)
    read = {**options, "subscribe": "secured"}
    frame = spark.read.format("headrace").options(**read).load()
    for mode in ("extended", "formatted", "codegen", "cost"):
        frame.explain(mode)
    execution = frame._jdf.queryExecution()
    print(execution.toString(), execution.logical().toJSON(), execution.executedPlan().toJSON())
    print("rows", frame.count())
    frame.select("value").write.format("headrace").options(**options, topic="copied").mode("append").save()
    stream = spark.readStream.format("headrace").options(**read, startingOffsets="earliest").load()
    writer = stream.select("value").writeStream.format("headrace").options(**options, topic="copied")
    place = str(directory / "checkpoint")
    query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(True)
    print(query.lastProgress, query.recentProgress, query._jsq.toString())
    copied = spark.read.format("headrace").options(**options, subscribe="copied").load()
    print("copied", copied.count())
    if jars:
        print("connector", spark.read.format("kafka").options(**read).load().count())
    checked = parse_options(read)
    print(checked, repr(checked), BatchReader(checked), parse_sink_options(options, frame.schema, overwrite=False))
    misspelt = {**read, "kafka.sasl.jass.config": options["kafka.sasl.jaas.config"]}
    unreachable = {**read, "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "2000"}
    for wrong in (misspelt, unreachable, {**read, "kafka.sasl.mechanism": "PLAINER"}):
        try:
            spark.read.format("headrace").options(**wrong).load().count()
        except Exception as error:
            print("refused", error)
    spark.stop()


if __name__ == "__main__":
    main()
