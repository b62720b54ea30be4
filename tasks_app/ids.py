"""Identities: 32 lower-case hex digits, time-ordered (UUIDv7, RFC 9562) so that inserts stay at the end of the
index.
"""

import os
import re
import threading

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_lock = threading.Lock()
_last = 0
_SEQUENCE_BITS = 12  # sub-millisecond order within one process


def is_id(text: object) -> bool:
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def new_id(at_us: int) -> str:
    """A new id stamped `at_us` (microseconds since the epoch); ids of one process strictly rise.

    The millisecond comes from the caller (the database's clock inside a unit), so that ids made by nodes with skewed
    clocks still sort by the one clock that matters. The 12 bits behind it are the fraction of that millisecond.
    """
    global _last
    stamp = at_us * 4096 // 1000
    with _lock:
        stamp = stamp if stamp > _last else _last + 1
        # A clock far ahead once must not freeze the order for ever: more than a second behind counts as a new start.
        if _last - at_us * 4096 // 1000 > 1000 * 4096:
            stamp = at_us * 4096 // 1000
        _last = stamp
    random_bits = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    value = ((stamp >> 12) % (1 << 48)) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | random_bits
    return f"{value:032x}"


def id_floor(at_us: int) -> str:
    """The smallest id that `new_id` can make at `at_us`: a bound for ranges over primary keys."""
    stamp = at_us * 4096 // 1000
    return f"{(stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64:032x}"


def id_instant(identity: str) -> int:
    """When the id was made, to the millisecond, in microseconds since the epoch."""
    return int(identity[:12], 16) * 1000
