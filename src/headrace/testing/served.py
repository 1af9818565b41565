"""The program of `BrokerProcess`: `headrace serve`, which ends when its standard input is closed."""

import os
import signal
import sys
import threading

from headrace.broker.app import main


def _end_with_the_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
