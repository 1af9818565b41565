"""One metrics page of all workers: each sample of a worker's page with a label `worker`.

headrace_worker_up{worker}                 1 if the worker's page came
headrace_worker_starts_total{worker}       how often its process was started
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headrace.broker.workers.worker import Worker

_PATIENCE_S = 8.0
_OPEN_METRICS_END = "# EOF"
_SAMPLE = re.compile(r"([^{\s]+)(\{)?(.*)", re.DOTALL)
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class WorkersPage:
    """Asks the workers for their pages at each request."""

    def __init__(self, workers: Sequence[Worker], sockets: Mapping[int, Path]) -> None:
        """`sockets`: where each worker's endpoint listens."""
        self._workers, self._sockets = workers, sockets

    async def render(self, accept: str) -> tuple[bytes, str]:
        """The page, in the format of the `Accept` header, and its content type."""
        found = await asyncio.gather(*(self._page(each, accept) for each in self._workers))
        pages = {worker.number: page for worker, page in zip(self._workers, found, strict=True) if page is not None}
        content_type = next((kind for _, kind in pages.values()), _TEXT)
        starts = {each.number: each.starts for each in self._workers}

        def write_out() -> bytes:
            texts = {number: text for number, (text, _) in pages.items()}
            return merged(texts, starts, is_open_metrics="openmetrics" in content_type).encode()

        return await asyncio.to_thread(write_out), content_type

    async def _page(self, worker: Worker, accept: str) -> tuple[str, str] | None:
        """A worker's page and its content type; None if it does not answer."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                reader, writer = await asyncio.open_unix_connection(str(self._sockets[worker.number]))
                try:
                    writer.write(f"GET /metrics HTTP/1.1\r\nHost: worker\r\nAccept: {accept}\r\n\r\n".encode("latin-1"))
                    answer = await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if " 200 " not in lines[0]:
            return None
        return body.decode(), fields.get("content-type", _TEXT)


def merged(pages: Mapping[int, str], starts: Mapping[int, int], *, is_open_metrics: bool) -> str:
    """One page of the pages of workers. The samples of a family are together, as the format demands."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for number, page in sorted(pages.items()):
        heads: list[str] = []
        samples: list[str] = []
        for line in page.splitlines():
            if line == _OPEN_METRICS_END or not line:
                continue
            if line.startswith("#"):
                name = line.split(" ", 3)[2]
                heads, samples = families.setdefault(name, ([], []))
                if line not in heads:
                    heads.append(line)
            else:
                samples.append(_labelled(line, number))
    lines = [line for heads, samples in families.values() for line in (*heads, *samples)]
    lines += _own(pages, starts, is_open_metrics=is_open_metrics)
    return "\n".join([*lines, *([_OPEN_METRICS_END] if is_open_metrics else [])]) + "\n"


def _own(pages: Mapping[int, str], starts: Mapping[int, int], *, is_open_metrics: bool) -> Iterable[str]:
    yield "# HELP headrace_worker_up Whether the worker answers."
    yield "# TYPE headrace_worker_up gauge"
    for number in starts:
        yield f'headrace_worker_up{{worker="{number}"}} {int(number in pages)}'
    name = "headrace_worker_starts" if is_open_metrics else "headrace_worker_starts_total"
    yield f"# HELP {name} How often the worker's process was started."
    yield f"# TYPE {name} counter"
    for number, count in starts.items():
        yield f'headrace_worker_starts_total{{worker="{number}"}} {count}'


def _labelled(sample: str, worker: int) -> str:
    """A sample line with the label of its worker."""
    matched = _SAMPLE.fullmatch(sample)
    assert matched is not None
    name, has_labels, rest = matched.groups()
    separator = "," if has_labels and not rest.startswith("}") else ""
    return f'{name}{{worker="{worker}"{separator}{rest}' if has_labels else f'{name}{{worker="{worker}"}}{rest}'
