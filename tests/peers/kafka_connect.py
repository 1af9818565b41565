"""A worker of Kafka Connect in distributed mode, with exactly-once support for source connectors.

    worker = ConnectWorker(bootstrap, "group", directory).start()
    worker.ask("PUT", "/connectors/NAME/config", {...})

Workers of one group share their three internal topics, which the first of them creates.
"""

import http.client
import json
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import eventually_serves, free_ports, tail
from tests.peers import kafka
from tests.peers.cache import build_once

HERE = Path(__file__).parent / "connect"
OFFSET_PARTITIONS = 3

PROPERTIES = """\
bootstrap.servers={bootstrap}
group.id={group}
exactly.once.source.support=enabled
listeners=http://127.0.0.1:{port}
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic={group}-configs
config.storage.replication.factor=1
offset.storage.topic={group}-offsets
offset.storage.replication.factor=1
offset.storage.partitions={offset_partitions}
status.storage.topic={group}-status
status.storage.replication.factor=1
status.storage.partitions=1
# only fencing ends the transaction of a killed worker in the time of a test
producer.transaction.timeout.ms=600000
# a killed worker leaves the group after this time, and its tasks move at once
session.timeout.ms=3000
heartbeat.interval.ms=500
scheduled.rebalance.max.delay.ms=0
"""


@dataclass
class ConnectWorker:
    """One worker process. Its log is in `directory`."""

    bootstrap: str
    group: str
    directory: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> "ConnectWorker":
        """Start it, and wait until it is a member of its group and answers over REST."""
        self.directory.mkdir(parents=True, exist_ok=True)
        [self.port] = free_ports(1)
        properties = self.directory / "worker.properties"
        properties.write_text(
            PROPERTIES.format(
                bootstrap=self.bootstrap, group=self.group, port=self.port, offset_partitions=OFFSET_PARTITIONS
            )
        )
        java = kafka.java_command(self.directory, "-Xmx256m", *kafka.QUICK_START, more_jars=[connector_jars()])
        command = [*java, "org.apache.kafka.connect.cli.ConnectDistributed", str(properties)]
        with (self.directory / "stdout.log").open("ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        eventually_serves(self.process, self._is_ready, "a Connect worker", log=self.log)
        return self

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """One request to the worker's REST interface: its status, and the answer's JSON (None where there is none)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_SECONDS)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return response.status, json.loads(answer) if is_json and answer else None
        finally:
            connection.close()

    def ask_until_served(self, method: str, path: str, body: object = None) -> object:
        """The answer to a request that may be repeated. The status is 409 or 500 while the workers rebalance, which
        they do at any time on a busy machine, and from a leader that does not know yet that it was replaced."""
        refused: list[tuple[int, object]] = []

        def is_served() -> bool:
            refused[:] = [self.ask(method, path, body)]
            return refused[0][0] not in (409, 500, 503)

        eventually(is_served, f"an answer to {method} {path}", every_s=0.2, state=lambda: refused)
        [(status, answer)] = refused
        assert status in (200, 201, 202, 204), answer
        return answer

    def state_of(self, connector: str) -> list[str]:
        """The states of a connector and of its tasks, as "RUNNING"; nothing if the worker does not know them yet."""
        status, answer = self.ask("GET", f"/connectors/{connector}/status")
        if status != 200:
            return []
        assert isinstance(answer, dict)
        return [answer["connector"]["state"], *(task["state"] for task in answer["tasks"])]

    def pause(self) -> None:
        """SIGSTOP: the worker does not know that time passes."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, also of a worker that is paused; nothing if it does not run."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def logged(self, text: str) -> bool:
        """Whether it logged this."""
        return text in (self.directory / "broker.log").read_text(errors="replace")

    def log(self) -> str:
        """The end of what it logged."""
        return tail(self.directory / "stdout.log") + tail(self.directory / "broker.log")

    def _is_ready(self) -> bool:
        return self.ask("GET", "/health")[0] == 200


def connector_jars() -> Path:
    """The directory of the connector that reads files; the first caller downloads it."""
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    maven = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), f"-Dkafka.version={kafka.VERSION}", *goal]
    home = build_once(f"kafka-connect-{kafka.VERSION}", lambda home: [[*maven, f"-DoutputDirectory={home / 'lib'}"]])
    return home / "lib"
