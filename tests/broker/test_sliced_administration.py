"""Requests of many users or features are handled in slices: the event loop has turns in between.

The turns are counted, and not timed.
"""

from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

from headrace.broker.cluster.features import SUPPORTED
from headrace.broker.handlers import alter_user_scram_credentials, update_features
from headrace.errors import ErrorCode
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.protocol import messages as m

COUNT = 10 * ELEMENTS_PER_SLICE
NO_MECHANISM = 77


class _Entities:
    """The users, none of whom has a credential."""

    async def rewrite(self, kind: str, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        change({})


def _context(version: int) -> Any:
    services = SimpleNamespace(entities=_Entities(), features=SimpleNamespace(finalized={}))
    return SimpleNamespace(services=services, api_version=version, in_order=lambda work, failed: work)


def _run(work: Coroutine[None, None, Any]) -> tuple[Any, int]:
    """What the work returns, and how often it gave the event loop a turn."""
    turns = 0
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value, turns
        turns += 1


def test_credentials_are_altered_in_slices() -> None:
    Request = m.AlterUserScramCredentialsRequest
    deletions = [Request.ScramCredentialDeletion(name=f"u{each}", mechanism=NO_MECHANISM) for each in range(COUNT)]
    request = Request(deletions=deletions)
    response, turns = _run(alter_user_scram_credentials.handle(_context(0), request))  # type: ignore[arg-type]
    assert {each.error_code for each in response.results} == {ErrorCode.UNSUPPORTED_SASL_MECHANISM}
    assert len(response.results) == COUNT
    # The requests are sorted by user in slices, and then checked, 100 users at a time.
    assert turns >= COUNT // ELEMENTS_PER_SLICE + COUNT // 100


def test_features_are_judged_in_slices() -> None:
    Request = m.UpdateFeaturesRequest
    known = next(iter(SUPPORTED))
    names = [known, *(f"unknown-{each}" for each in range(COUNT))]
    request = Request(feature_updates=[Request.FeatureUpdateKey(feature=name, upgrade_type=1) for name in names])
    response, turns = _run(update_features.handle(_context(1), request))  # type: ignore[arg-type]
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION  # of the second, the first that is unknown
    assert turns >= COUNT // ELEMENTS_PER_SLICE  # names are counted before any is judged
