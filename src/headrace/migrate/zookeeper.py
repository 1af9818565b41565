"""Reads and writes a metadata tree in a running ZooKeeper, with kazoo (the extra `zookeeper`).

Reads request a whole level of the tree at once. Writes use transactions below ZooKeeper's limit of 1 MiB. A chroot that
is not empty is not written to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.metastore.zookeeper.ensemble import Ensemble
from headrace.migrate.nodes import LOOKED_AT, Nodes
from headrace.migrate.refusal import MigrationRefused, some

CONNECT_SECONDS = 15.0
BYTES_PER_WRITE = 400_000
NODES_PER_WRITE = 500
NODES_ASKED_AT_ONCE = 1000
ZOOKEEPERS_OWN = "zookeeper"


def read_zookeeper(ensemble: Ensemble) -> Nodes:
    """The persistent nodes that a migration reads, below the chroot.

    Raises MigrationRefused if ZooKeeper cannot be reached, or denies access to a node.
    """
    chroot = ensemble.root
    with _connected(ensemble) as client:
        if chroot and client.exists(chroot) is None:
            raise MigrationRefused(f"ZooKeeper {ensemble} has no node {chroot}")
        nodes: Nodes = {}
        level = list(LOOKED_AT)
        while level:
            found = _get_all(client, [chroot + path for path in level])
            here = [(path, each) for path, each in zip(level, found, strict=True) if each is not None]
            nodes.update((path, data or b"") for path, (data, stat) in here if not stat.ephemeralOwner)
            parents = [path for path, (_, stat) in here if stat.numChildren]
            names = _children(client, [chroot + path for path in parents])
            level = [f"{path}/{name}" for path, under in zip(parents, names, strict=True) for name in under]
        return nodes


def write_zookeeper(ensemble: Ensemble, nodes: Mapping[str, bytes]) -> None:
    """Creates the chroot, which must be empty, and writes a tree, parents first. Raises MigrationRefused."""
    chroot = ensemble.root
    with _connected(ensemble) as client:
        from headrace.metastore.zookeeper.access_lists import AccessLists

        acls = AccessLists(chroot, ensemble.set_acl)
        _must_be_empty(client, ensemble)
        if chroot:
            client.ensure_path(chroot, acl=acls.of(chroot))
        for piece in _pieces(nodes):
            transaction = client.transaction()
            for path, data in piece:
                transaction.create(chroot + path, data, acl=acls.of(chroot + path))
            failed = [each for each in transaction.commit() if isinstance(each, Exception)]
            if failed:
                raise MigrationRefused(
                    f"ZooKeeper {ensemble} refused a part of the tree ({failed[0]!r}): the chroot holds the other "
                    "parts; delete it and try again"
                )


def check_empty(ensemble: Ensemble) -> None:
    """Raises MigrationRefused unless `write_zookeeper` could write there."""
    with _connected(ensemble) as client:
        _must_be_empty(client, ensemble)


def _must_be_empty(client: Any, ensemble: Ensemble) -> None:
    chroot = ensemble.root
    found = client.get_children(chroot or "/") if client.exists(chroot or "/") else []
    others = [name for name in found if name != ZOOKEEPERS_OWN]
    if others:
        raise MigrationRefused(f"ZooKeeper {ensemble} is not empty ({some(others)}): name an empty chroot")


@contextmanager
def _connected(ensemble: Ensemble) -> Iterator[Any]:
    """A client without a chroot."""
    try:
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError
        from kazoo.retry import KazooRetry

        from headrace.metastore.zookeeper.secured_client import make_client
    except ImportError:
        raise MigrationRefused("ZooKeeper requires kazoo: pip install 'headrace[zookeeper]'") from None
    retry = KazooRetry(max_tries=3, max_delay=1)
    client = make_client(ensemble, read_only=False, connection_retry=retry, logger=_kazoo_log())
    try:
        client.start(timeout=CONNECT_SECONDS)
        yield client
    except KazooTimeoutError as error:
        raise MigrationRefused(
            f"ZooKeeper {ensemble}: no server answered within {CONNECT_SECONDS:g} s; check that the ensemble is "
            "running and that this is its address"
        ) from error
    except (KazooException, OSError) as error:
        said = str(error) or type(error).__name__
        raise MigrationRefused(f"ZooKeeper {ensemble}: {said}") from error
    finally:
        client.stop()
        client.close()


def _kazoo_log() -> logging.Logger:
    """Takes kazoo's lines about each attempt to connect: the command says in the end what came of them."""
    log = logging.getLogger(f"{__name__}.kazoo")
    log.propagate = False
    log.handlers = [logging.NullHandler()]
    return log


def _get_all(client: Any, paths: Sequence[str]) -> list[Any]:
    """(data, stat) of each path; None if it does not exist."""
    from kazoo.exceptions import NoNodeError

    found: list[Any] = []
    for start in range(0, len(paths), NODES_ASKED_AT_ONCE):
        for answer in [client.get_async(path) for path in paths[start : start + NODES_ASKED_AT_ONCE]]:
            try:
                found.append(answer.get())
            except NoNodeError:
                found.append(None)
    return found


def _children(client: Any, paths: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = []
    for start in range(0, len(paths), NODES_ASKED_AT_ONCE):
        answers = [client.get_children_async(path) for path in paths[start : start + NODES_ASKED_AT_ONCE]]
        found += [answer.get() for answer in answers]
    return found


def _pieces(nodes: Mapping[str, bytes]) -> Iterator[list[tuple[str, bytes]]]:
    piece: list[tuple[str, bytes]] = []
    size = 0
    for path, data in nodes.items():
        more = len(path) + len(data)
        if piece and (size + more > BYTES_PER_WRITE or len(piece) == NODES_PER_WRITE):
            yield piece
            piece, size = [], 0
        piece.append((path, data))
        size += more
    if piece:
        yield piece
