"""The fixed limits of the lifecycle, with their unit in the name (design, chapter 4).

What an operator may tune (`ORBIT_UPSTREAM_TIMEOUT_MS`, `ORBIT_RETAIN_REPORTS`) is a setting.
"""

from tasks_app.limits import KIB

# -- Identities
GID_MIN, GID_MAX = 1, 2**63 - 1
NAME_LENGTH_MAX = 256
REQUESTER_LENGTH_MAX = 128
STORAGE_NODE_NAME_LENGTH_MAX = 128

# -- Wire (4.7)
FRAME_HEADER_BYTES = 5
FRAME_BYTES_MAX = 1024 * KIB  # the JSON of one frame, without its header
UNAUTHENTICATED_FRAME_BYTES_MAX = 4 * KIB  # an Identity is small; a stranger gets no more
PAUSED_BYTES_MAX = 2 * (FRAME_HEADER_BYTES + FRAME_BYTES_MAX)  # held while the database is asked who a node is
FRAME_JSON_DEPTH_MAX = 8  # no message is nested deeper than 3 levels
IDENTITY_SECONDS = 5
HELLO_SECONDS = 5
REPORT_ID_LENGTH_MAX = 128
REVISION_MAX = 2**63 - 1
REPORT_TASKS_MAX = 10_000  # entries of one report, applied in one transaction
NODE_ERROR_LENGTH_MAX = 1000  # of a node's words about a failure, as far as they are kept

# -- Upstream (4.2)
UPSTREAM_ANSWER_BYTES_MAX = 256 * KIB  # read no further: what is longer is unreadable
UPSTREAM_EXCERPT_LENGTH_MAX = 2000  # of an answer that is no JSON, kept as evidence
UPSTREAM_CALLS_MAX = 4  # at once and per process: a slow upstream must not hold every thread of the API
SUBMIT_DELAY_SECONDS_MAX = 10  # between the commit of SUBMITTING and the call; later, the call is not made at all
QUANTITY_MAX = 2**53 - 1

# -- Evidence
EVIDENCE_REPORTS_MAX = 20
EVIDENCE_LOOKUPS_MAX = 5

# -- Orbit nodes (4.6)
HEARTBEAT_SECONDS = 5
OWNER_SILENCE_SECONDS_MAX = 30  # then what it left behind is recovered by another node
RECOVERY_SWEEP_SECONDS = 2

# -- Delivery (4.5)
DELIVERY_SCAN_SECONDS = 0.5
DELIVERY_BATCH = 200
UNSENT_BYTES_MAX = 4 * KIB * KIB
UNSENT_SECONDS_MAX = 5

# -- Notifications (4.4)
NOTIFY_BATCH = 50
NOTIFY_TIMEOUT_MS = 5_000
NOTIFY_BACKOFF_MS_MIN, NOTIFY_BACKOFF_MS_MAX = 1_000, 300_000

assert UNAUTHENTICATED_FRAME_BYTES_MAX < FRAME_BYTES_MAX < PAUSED_BYTES_MAX
assert DELIVERY_SCAN_SECONDS * 2 < 2, "a command leaves within 2 s"
assert HEARTBEAT_SECONDS * 3 <= OWNER_SILENCE_SECONDS_MAX, "two beats may be late before a node counts as gone"
assert OWNER_SILENCE_SECONDS_MAX + RECOVERY_SWEEP_SECONDS < 35, "an orphan is UNKNOWN within 35 s of its owner's death"
assert SUBMIT_DELAY_SECONDS_MAX < OWNER_SILENCE_SECONDS_MAX, "no call begins after others may have recovered its intent"
