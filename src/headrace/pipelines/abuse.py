"""Those who abuse the simulated site, beside its ordinary members.

crawlers         two addresses that view 5 pages a second, for a quarter of the time each
API abusers      a member whose program searches 4 times a second
spammers         a member who posts the same text every other second
log-in attacks   an address that tries the passwords of all members, and a slow one that stays below the limits
"""

from random import Random
from typing import Any, Final

CRAWLERS: Final = ("203.0.113.7", "203.0.113.8")
API_ABUSER: Final = "m9001"
SPAMMER: Final = "m9002"
ATTACKER: Final = "198.51.100.9"
PATIENT_ATTACKER: Final = "198.51.100.10"


def abuse_in_second(
    random: Random, second: int, seconds: int, now_ms: int
) -> list[tuple[int, str, str, dict[str, Any]]]:
    """What they do in this second of all `seconds`: (time_ms, topic without `site.`, key, fields)."""
    elapsed = second / seconds
    done: list[tuple[str, str, dict[str, Any]]] = []
    for at, ip in enumerate(CRAWLERS):
        if 0.1 + at / 3 <= elapsed < 0.35 + at / 3:
            pages: list[dict[str, Any]] = [
                {"member": None, "ip": ip, "path": f"/page/{5 * second + n}", "items": []} for n in range(5)
            ]
            done += [("views", ip, page) for page in pages]
    if 0.4 <= elapsed < 0.6:
        search = {"member": API_ABUSER, "ip": "203.0.113.50", "text": "everything", "items": []}
        done += [("searches", API_ABUSER, search)] * 4
    if 0.2 <= elapsed < 0.5 and second % 2 == 0:
        done.append(("posts", SPAMMER, {"author": SPAMMER, "text": "buy cheap records"}))
    if 0.55 <= elapsed < 0.65:
        victims = [f"m{random.randrange(400):04d}" for _ in range(3)]
        done += [("logins", ATTACKER, {"ip": ATTACKER, "member": each, "is_ok": False}) for each in victims]
    if second % 20 == 0:
        slow = {"ip": PATIENT_ATTACKER, "member": f"m{second // 20:04d}", "is_ok": False}
        done.append(("logins", PATIENT_ATTACKER, slow))
    return [(now_ms + random.randrange(1000), topic, key, fields) for topic, key, fields in done]
