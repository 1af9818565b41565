"""Our high-level consumer as a process; see `members`."""

import sys
import threading

from headrace.client import Blacklist, ConnectorSettings, ConsumerConnector, KafkaError, Whitelist
from headrace.client.zookeeper_consumer.stream import Stream

_printing = threading.Lock()


def say(line: str) -> None:
    with _printing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def read(number: int, stream: Stream) -> None:
    for record in stream:
        assert record.value is not None
        say(f"{number} {record.topic} {record.partition} {record.offset} {record.value.decode()}")


def settings_of(pairs: dict[str, str]) -> ConnectorSettings:
    return ConnectorSettings(
        auto_offset_reset=pairs["auto.offset.reset"],
        auto_commit_interval_ms=int(pairs["auto.commit.interval.ms"]),
        zookeeper_session_timeout_ms=int(pairs["zookeeper.session.timeout.ms"]),
        zookeeper_connection_timeout_ms=int(pairs["zookeeper.connection.timeout.ms"]),
        rebalance_backoff_ms=int(pairs["rebalance.backoff.ms"]),
        offsets_storage=pairs.get("offsets.storage", "zookeeper"),
        dual_commit_enabled=pairs.get("dual.commit.enabled", "true") == "true",
    )


def main(zookeeper: str, group: str, kind: str, name: str, count: str, *pairs: str) -> None:
    settings = settings_of(dict(pair.split("=", 1) for pair in pairs))
    connector = ConsumerConnector(zookeeper=zookeeper, group=group, settings=settings)
    if kind == "topic":
        streams = connector.create_message_streams({name: int(count)})[name]
    else:
        chosen = Whitelist(name) if kind == "white" else Blacklist(name)
        streams = connector.create_message_streams_by_filter(chosen, int(count))
    for number, stream in enumerate(streams):
        threading.Thread(target=read, args=(number, stream), daemon=True).start()
    say("ready")
    for line in sys.stdin:
        if line == "commit\n":
            try:
                connector.commit_offsets()
                say("committed")
            except KafkaError:
                say("refused")
    connector.shutdown()
    say("ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
