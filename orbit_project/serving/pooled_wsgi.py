"""Django behind a bounded pool of threads: one database connection per thread, kept.

Under ASGI Django opens a new database connection for every request; as WSGI in threads of our own the same view answers
three times as many requests with as many connections as there are threads. When every
thread is busy and the queue is full, a request is refused with 503 instead of waiting without an end.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import IO, Any

from orbit_project.serving import doors
from orbit_project.serving.exchanges import Answer, Exchange, Head
from workers_app.pools import BoundedPool

WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

# Names of headers that a request repeated; WSGI joins their values with commas, after which nobody could tell.
REPEATED_HEADERS = "orbit.repeated_headers"
# Says whether the client has left, to whoever works on something long.
CLIENT_GONE = "orbit.client_gone"


class ResponseTooLong(Exception):
    """A view produced more than a node sends."""


class PooledWsgi:
    """A WSGI application whose requests run in `pool`."""

    def __init__(self, application: WsgiApplication, pool: BoundedPool) -> None:
        self._application = application
        self._pool = pool

    def start(
        self,
        exchange: Exchange,
        *,
        extra: Mapping[str, Any],
        then: Callable[[Answer | BaseException], None],
    ) -> None:
        """Have the request answered; `then` gets the answer, or what went wrong, in the event loop.

        `extra` is added to the environ. If the client leaves while the request waits for a thread it is taken back;
        once it runs it runs to its end. Raises PoolSaturated at once if there is no room.
        """
        loop = asyncio.get_running_loop()
        future = self._pool.submit(lambda: self._answer(exchange, extra))
        exchange.on_gone(future.cancel)

        def deliver() -> None:
            if not future.cancelled():
                error = future.exception()
                then(error if error is not None else future.result())

        def done(_: object) -> None:
            # The loop is gone only when the node leaves, and then nobody waits for this answer.
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver)

        future.add_done_callback(done)

    def _answer(self, exchange: Exchange, extra: Mapping[str, Any]) -> Answer:
        """Runs in a pool thread."""
        environ = make_environ(exchange.head, exchange.body)
        environ.update(extra)
        environ[CLIENT_GONE] = lambda: exchange.gone
        started: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            started[:] = [status, headers]

        chunks = self._application(environ, start_response)
        try:
            body, file, size = _collect(chunks, exchange)
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
        status, headers = started
        code, _, reason = status.partition(" ")
        return Answer(int(code), reason, list(headers), body, file, size)


def _collect(chunks: Iterable[bytes], exchange: Exchange) -> tuple[bytes, IO[bytes] | None, int]:
    """The body as bytes, or as a file once it is long, so that a slow reader never holds a thread."""
    parts: list[bytes] = []
    size = 0
    file: IO[bytes] | None = None
    for chunk in chunks:
        size += len(chunk)
        if size > doors.RESPONSE_BYTES_MAX:
            if file is not None:
                file.close()
            raise ResponseTooLong(f"more than {doors.RESPONSE_BYTES_MAX} bytes")
        if file is not None:
            file.write(chunk)
        elif size > doors.RESPONSE_MEMORY_BYTES and parts:
            file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by whoever sends it
            file.writelines([*parts, chunk])
            parts.clear()
        else:
            parts.append(chunk)
        if exchange.gone:
            break  # nobody will read the rest
    if file is not None:
        file.seek(0)
    return b"".join(parts), file, size


def make_environ(head: Head, body: bytes) -> dict[str, Any]:
    """The WSGI environ (PEP 3333) of a complete request; a chunked body gets its real length."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": head.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": head.path.decode("latin-1"),
        "QUERY_STRING": head.query,
        "REMOTE_ADDR": head.caller.address,
        "SERVER_NAME": head.server[0],
        "SERVER_PORT": str(head.server[1]),
        "SERVER_PROTOCOL": f"HTTP/{head.http_version}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": head.caller.scheme,
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
    }
    counts = Counter(name for name, _ in head.headers)
    environ[REPEATED_HEADERS] = frozenset(name for name, count in counts.items() if count > 1)
    for name, value in head.headers:
        if name in ("content-length", "transfer-encoding"):
            continue
        key = "CONTENT_TYPE" if name == "content-type" else "HTTP_" + name.upper().replace("-", "_")
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    if body or any(name == "content-length" for name, _ in head.headers):
        environ["CONTENT_LENGTH"] = str(len(body))
    return environ
