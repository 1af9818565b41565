"""Whoever follows notifications reads everything when a session follows one that was lost, and only then."""

from collections.abc import Callable
from typing import cast

from headrace.metadata.change_feed import on_new_session
from headrace.metastore.store import MetadataStore, SessionState


class Sessions:
    """The one thing of a store that is asked for."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[SessionState], None]] = []

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self.listeners.append(listener)

    def pass_through(self, *states: SessionState) -> None:
        for state in states:
            for listener in self.listeners:
                listener(state)


def test_a_session_that_goes_on_is_not_new_and_one_after_a_loss_is_once() -> None:
    sessions, begun = Sessions(), list[str]()
    on_new_session(cast(MetadataStore, sessions), lambda: begun.append("new"))
    sessions.pass_through(SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED)
    assert begun == []
    sessions.pass_through(SessionState.LOST, SessionState.LOST)
    assert begun == []
    sessions.pass_through(SessionState.CONNECTED, SessionState.CONNECTED)
    assert begun == ["new"]
    sessions.pass_through(SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED)
    assert begun == ["new", "new"]
