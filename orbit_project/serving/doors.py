"""The fixed limits of the node's doors: connections, waiting times, buffers (sizes of bodies: `tasks_app.limits`).

What a stranger can hold open is bounded by these numbers alone, because it happens before anybody is authenticated.
"""

from tasks_app.limits import BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX, KIB

# -- Connections, HTTP and WebSocket together
CONNECTIONS_MAX = 4096
DESCRIPTORS_RESERVED = 256  # for databases, logs, listening sockets: never given to connections

# -- How long a client may take (seconds of the monotonic clock)
HEAD_SECONDS = 10  # from the connection, or the first byte of a further request, to the end of the headers
REQUEST_SECONDS = 30  # to the last byte of the body: a total, so trickling does not prolong it
KEEP_ALIVE_SECONDS = 75  # idle between two requests
UNREAD_RESPONSE_SECONDS = 30  # a response that the client does not take
LINGER_SECONDS = 2  # after a refusal: read and drop, so that the answer is not destroyed by a reset
LINGER_BYTES = 2 * 1024 * KIB
HANDSHAKE_SECONDS = 5  # a WebSocket handshake, credential included
TICK_SECONDS = 0.5  # how often these are looked at

# -- Memory
UPLOADS_BYTES_MAX = 128 * 1024 * KIB  # all request bodies that are being received, together
RESPONSE_CHUNK_BYTES = 64 * KIB
RESPONSE_MEMORY_BYTES = 1024 * KIB  # a longer response is spooled to a temporary file
RESPONSE_BYTES_MAX = 2 * 1024 * 1024 * KIB

# -- Work that waits
API_WAITING_PER_THREAD = 32
LONG_POLLS_MAX = 1000

BATCH_PATH = b"/v1/tasks:batch"


def body_bytes_max(path: bytes) -> int:
    """The limit for a body sent to `path` (decoded, without the query)."""
    return BATCH_BODY_BYTES_MAX if path == BATCH_PATH else BODY_BYTES_MAX


assert HEAD_SECONDS < REQUEST_SECONDS  # noqa: S101
assert RESPONSE_CHUNK_BYTES <= RESPONSE_MEMORY_BYTES  # noqa: S101
