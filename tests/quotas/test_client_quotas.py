"""Which quota applies to whom, who shares it, and that it costs the same among a hundred thousand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.limits import QUOTA_BUCKETS_MAX
from headrace.quotas import client_quotas
from headrace.quotas.client_quotas import ClientQuotas, QuotaKind
from headrace.quotas.entities import DEFAULT, Entity, Name
from headrace.quotas.mutations import MutationQuota
from headrace.quotas.token_bucket import TokenBucket

BY_PRECEDENCE = [
    Entity("u", "c"),
    Entity("u", DEFAULT),
    Entity("u"),
    Entity(DEFAULT, "c"),
    Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT),
    Entity(None, "c"),
    Entity(None, DEFAULT),
]


class Clock:
    now = 0.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotas(clock: Clock) -> ClientQuotas:
    return ClientQuotas(QuotaKind.PRODUCE, lambda: 10, lambda: clock.now)


def rate_of(quotas: ClientQuotas, user: str, client: str) -> float | None:
    bucket = quotas.bucket(user, client)
    return None if bucket is None else bucket.rate


def test_the_eight_levels_apply_in_kafkas_order(quotas: ClientQuotas) -> None:
    for level, entity in reversed(list(enumerate(BY_PRECEDENCE, 1))):
        quotas.set_rate(entity, level)
        assert rate_of(quotas, "u", "c") == level
    for level, entity in enumerate(BY_PRECEDENCE, 1):
        assert rate_of(quotas, "u", "c") == level
        quotas.set_rate(entity, None)
    assert rate_of(quotas, "u", "c") is None
    assert not quotas.is_active


NAMES = st.sampled_from(["u", "c", "x", DEFAULT, None])
ENTITIES = st.builds(Entity, NAMES, NAMES).filter(lambda entity: entity != Entity())


@given(st.dictionaries(ENTITIES, st.integers(1, 1000)), st.sampled_from("ucx"), st.sampled_from(["u", "c", "x", ""]))
def test_the_most_specific_quota_applies(rates: dict[Entity, int], user: str, client: str) -> None:
    """Against a description by specificity: the user counts before the client, a name before the default."""
    quotas = ClientQuotas(QuotaKind.PRODUCE, lambda: 10, lambda: 0)
    for entity, rate in rates.items():
        quotas.set_rate(entity, rate)

    def fits(part: Name, name: str) -> bool:
        return part is None or (bool(name) and part in (name, DEFAULT))

    def worth(entity: Entity) -> list[int]:
        return [0 if part is None else 1 if part is DEFAULT else 2 for part in entity]

    fitting = [e for e in rates if fits(e.user, user) and fits(e.client, client)]
    expected = rates[max(fitting, key=worth)] if fitting else None
    assert rate_of(quotas, user, client) == expected


def test_whoever_a_quota_is_for_shares_one_bucket(quotas: ClientQuotas) -> None:
    quotas.set_rate(Entity(DEFAULT), 5)
    assert quotas.bucket("u", "a") is quotas.bucket("u", "b") is quotas.bucket("u", "")
    assert quotas.bucket("u", "a") is not quotas.bucket("v", "a")
    quotas.set_rate(Entity(None, DEFAULT), 5)
    quotas.set_rate(Entity(DEFAULT), None)
    assert quotas.bucket("u", "a") is quotas.bucket("v", "a")
    assert quotas.bucket("u", "a") is not quotas.bucket("u", "b")
    assert quotas.bucket("u", "") is None
    quotas.set_rate(Entity(DEFAULT, DEFAULT), 5)
    assert len({id(quotas.bucket(user, client)) for user in "uv" for client in "ab"}) == 4


def test_a_change_reaches_a_client_that_is_throttled(quotas: ClientQuotas) -> None:
    quotas.set_rate(Entity("u"), 10)
    bucket = quotas.bucket("u", "c")
    assert bucket is not None and bucket.spend(300, 0) == 20
    quotas.set_rate(Entity("u"), 20)
    assert quotas.bucket("u", "c") is bucket
    assert bucket.wait_s(0) == 5
    quotas.set_rate(Entity("u"), None)
    assert quotas.bucket("u", "c") is None


@pytest.mark.slow
def test_full_buckets_are_dropped_and_used_ones_stay(
    quotas: ClientQuotas, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas.set_rate(Entity(None, DEFAULT), 1)
    in_debt = quotas.bucket("u", "in debt")
    assert in_debt is not None
    in_debt.spend(1e9, 0)
    for number in range(3 * client_quotas.BUCKETS_BEFORE_SWEEP):
        clock.now += 1
        bucket = quotas.bucket("u", f"c{number}")
        assert bucket is not None
        bucket.spend(1, clock.now)
    assert len(quotas) <= client_quotas.BUCKETS_BEFORE_SWEEP
    assert quotas.bucket("u", "in debt") is in_debt


def test_a_hundred_thousand_entities_are_set_and_found(quotas: ClientQuotas) -> None:
    for number in range(100_000):
        quotas.set_rate(Entity(f"u{number}"), number + 1)
    assert rate_of(quotas, "u77777", "c") == 77_778


def test_a_strict_quota_refuses_while_overdrawn_and_a_permissive_one_counts() -> None:
    strict = MutationQuota(TokenBucket(2, 22, 0), is_strict=True)
    assert strict.allows(30, 0)
    assert (strict.is_exceeded, strict.wait_s(0)) == (False, 0)
    assert not strict.allows(1, 0)
    assert (strict.is_exceeded, strict.wait_s(0), strict.wait_s(1)) == (True, 4, 3)
    permissive = MutationQuota(TokenBucket(2, 22, 0), is_strict=False)
    assert permissive.allows(22, 0)
    assert not permissive.is_exceeded
    assert permissive.allows(8, 0)
    assert permissive.allows(2, 0)
    assert permissive.wait_s(0) == 5


def test_a_long_client_id_is_not_kept_and_has_its_quota(quotas: ClientQuotas) -> None:
    long, other = "c" * 32_000, "c" * 32_001
    quotas.set_rate(Entity(None, DEFAULT), 1)
    quotas.set_rate(Entity(None, long), 2)
    assert (rate_of(quotas, "u", long), rate_of(quotas, "u", other)) == (2, 1)
    assert quotas.bucket("u", long) is quotas.bucket("v", long) is not quotas.bucket("u", other)
    kept = [*quotas._resolved, *quotas._buckets]
    assert max(len(name) for names in kept for name in names) <= client_quotas.NAME_CHARS_MAX


@pytest.mark.slow
def test_the_smallest_debts_are_forgotten_when_there_are_too_many(quotas: ClientQuotas) -> None:
    quotas.set_rate(Entity(None, DEFAULT), 1)
    large = quotas.bucket("u", "large")
    assert large is not None
    large.spend(1e9, 0)
    for number in range(2 * QUOTA_BUCKETS_MAX):
        bucket = quotas.bucket("u", f"c{number}")
        assert bucket is not None
        bucket.spend(100, 0)
        assert len(quotas) <= QUOTA_BUCKETS_MAX
    assert quotas.bucket("u", "large") is large
