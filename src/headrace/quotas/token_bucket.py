"""A token bucket: fills at a rate, holds a burst, and may be overdrawn. The one engine of all quotas. Pure.

    tokens
    burst ┤──╮                  full: an idle client may use `burst` at once
          │  │╲    ╱╲
        0 ┼──┴─╲──╱──╲───────▶  time
          │     ╲╱              overdrawn: `wait_s` until the bucket is at 0 again
               debt

A request is counted after it was served, so one larger than the burst passes, and its client waits for the debt. What
must not be served before it is paid for asks `wait_for` first.

A bucket that is full behaves as a new one: it may be dropped, and created again when it is needed.

Apache Kafka's rate quotas count what was used in the last N samples of S seconds (`quota.window.num`,
`quota.window.size.seconds`), and let wait so long that the average over the window falls to the rate: used / rate -
window. A bucket with `burst` = rate * (N - 1) * S gives the same time for the same use within one window. It differs
when a window passes: Kafka forgets what a sample counted all at once when the sample leaves the window; the bucket
forgets it evenly. KIP-599's quota of controller mutations is a token bucket in Kafka too, with N * S seconds' worth.
Source: Kafka's `Rate`, `TokenBucket`, `QuotaUtils`.
"""

INFINITE = float("inf")


class TokenBucket:
    """One bucket. Times are in seconds of any clock that does not go back; tokens are in the unit of the quota."""

    __slots__ = ("_filled_at", "burst", "rate", "tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """`rate`: tokens per second, above 0. `burst`: what a full bucket holds; it starts full."""
        self.rate, self.burst = rate, burst
        self.tokens = burst
        """What is left; below 0 if overdrawn. As of the last call."""
        self._filled_at = now

    def fill(self, now: float) -> float:
        """Adds what has come since the last call; returns the tokens. An earlier `now` than before adds nothing."""
        elapsed = now - self._filled_at
        if elapsed > 0:
            self._filled_at = now
            self.tokens = min(self.burst, self.tokens + elapsed * self.rate)
        return self.tokens

    def spend(self, amount: float, now: float) -> float:
        """Takes `amount`, also what is not there; returns the seconds until the debt is paid, 0 without one."""
        tokens = self.tokens = self.fill(now) - amount
        return -tokens / self.rate if tokens < 0 else 0.0

    def wait_s(self, now: float) -> float:
        """The seconds until the debt is paid; 0 without one."""
        tokens = self.fill(now)
        return -tokens / self.rate if tokens < 0 else 0.0

    def wait_for(self, amount: float, now: float) -> float:
        """The seconds until `amount` is there; 0 if it is. More than the burst is never there: then until full."""
        missing = min(amount, self.burst) - self.fill(now)
        return missing / self.rate if missing > 0 else 0.0

    def refund(self, amount: float) -> None:
        """Takes back a `spend` that did not happen."""
        self.tokens = min(self.burst, self.tokens + amount)

    def change(self, rate: float, burst: float, now: float) -> None:
        """Sets another rate and burst. What was used stays used, so that a client gains nothing by a change to and fro;
        a debt under the old rate is paid at the new one."""
        used = self.burst - self.fill(now)
        self.rate, self.burst = rate, burst
        self.tokens = burst - used

    def retune(self, rate: float, burst: float, now: float) -> None:
        """Sets another rate and burst, of a part of a limit that moves between buckets. What is left stays left, up to
        the new burst: a higher rate brings no tokens that another bucket has given already, and a lower one no debt."""
        self.tokens = min(self.fill(now), burst)
        self.rate, self.burst = rate, burst

    def is_full(self, now: float) -> bool:
        """Whether nothing is used: the bucket is then equal to a new one."""
        return self.fill(now) >= self.burst
