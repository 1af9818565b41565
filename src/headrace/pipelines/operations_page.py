"""The live page of `operations`: each service's last windows and its alert, at http://127.0.0.1:PORT/.

    python -m headrace.pipelines page --bootstrap HOST:PORT --port 8017

It reads `operations.windows` from the beginning and keeps the last windows of each service. The browser asks again
every 2 s. /windows.json has the same for programs. Only this machine can reach it: there is no log-in.
"""

import json
import threading
from collections import deque
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from headrace.client.consumer.consumer import Consumer
from headrace.pipelines.operations import HIGH_MS, OUTPUT
from headrace.pipelines.topics import PARTITIONS
from headrace.types import TopicPartition

WINDOWS_KEPT: Final = 60
_STYLE: Final = (
    "body{font:14px system-ui;margin:2em}table{border-collapse:collapse}td,th{padding:.3em 1em;text-align:right}"
    "tr.alert{background:#fdd}svg{background:#f6f6f6}polyline{fill:none;stroke:#0b6e99;stroke-width:1.5}"
    "line{stroke:#c00;stroke-dasharray:3}"
)


class LivePage:
    """Reads the topic in a thread, and serves the page in another. Close it to end both."""

    def __init__(self, bootstrap: str, port: int = 0) -> None:
        self._windows: dict[str, deque[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Requests are not logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._threads = [
            threading.Thread(target=self._read, args=(bootstrap,), daemon=True),
            threading.Thread(target=self._server.serve_forever, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._end.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join()
        self._server.server_close()

    def _read(self, bootstrap: str) -> None:
        with Consumer(bootstrap, isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition(OUTPUT, number) for number in range(PARTITIONS)])
            consumer.seek_to_beginning()
            while not self._end.is_set():
                for record in consumer.poll(timeout_ms=200):
                    window = json.loads(record.value)
                    with self._lock:
                        self._windows.setdefault(window["service"], deque(maxlen=WINDOWS_KEPT)).append(window)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answers one request of a browser."""
        with self._lock:
            windows = {service: list(kept) for service, kept in sorted(self._windows.items())}
        pages = {"/": ("text/html", _page(windows)), "/windows.json": ("application/json", json.dumps(windows))}
        kind, text = pages.get(request.path, ("text/plain", "not found"))
        request.send_response(200 if request.path in pages else 404)
        body = text.encode()
        request.send_header("Content-Type", f"{kind}; charset=utf-8")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


def _page(windows: dict[str, list[dict[str, Any]]]) -> str:
    rows = "".join(_row(service, kept) for service, kept in windows.items())
    head = "<th>service<th>window<th>requests<th>errors<th>p50<th>p95<th>p99<th>p95, last ten minutes"
    return (
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>operations</title>'
        f"<style>{_STYLE}</style><h1>Operations</h1><table><tr>{head}{rows}</table>"
    )


def _row(service: str, kept: list[dict[str, Any]]) -> str:
    last = kept[-1]
    highest = max(HIGH_MS * 1.2, *(window["p95"] for window in kept))
    points = " ".join(f"{4 * at},{40 - 40 * window['p95'] / highest:.1f}" for at, window in enumerate(kept))
    level = 40 - 40 * HIGH_MS / highest
    line = f'<line x2="240" y1="{level:.1f}" y2="{level:.1f}"/>'
    chart = f'<svg width="240" height="40"><polyline points="{points}"/>{line}</svg>'
    cells = [service, last["window"][11:19], last["requests"], last["errors"]]
    cells += [f"{last[name]:.0f}" for name in ("p50", "p95", "p99")]
    text = "".join(f"<td>{escape(str(cell))}" for cell in cells)
    return f'<tr class="{escape(last["state"])}">{text}<td>{chart}'
