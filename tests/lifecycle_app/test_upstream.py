"""The HTTP adapter against a scripted upstream over real sockets."""

import json
import socket
import threading
import time

import pytest

from lifecycle_app.fakes import upstream as fake
from lifecycle_app.http_call import CallFault, call_once
from lifecycle_app.limits import UPSTREAM_ANSWER_BYTES_MAX
from lifecycle_app.upstream import HttpUpstream, Prepared, SubmitResult, excerpt, refusal
from tasks_app.errors import UpstreamFailed

OPERATION_ID = "a" * 32
TOKEN = "upstream-token-that-must-not-leak"


@pytest.fixture
def played():
    """A scripted upstream and the adapter that talks to it."""
    upstream = fake.FakeUpstream(token=TOKEN)
    server, url = fake.start(upstream)
    yield upstream, HttpUpstream(url=url, timeout_ms=1000, token=TOKEN)
    server.shutdown()
    server.server_close()


def submit(played, word):
    upstream, adapter = played
    upstream.script({"submit": {"7": [word]}})
    return adapter.submit(Prepared("{}", 1), gid=7, operation_id=OPERATION_ID)


class TestPrepare:
    def test_the_answer_is_kept_exactly_and_its_size_is_what_is_metered(self, played):
        upstream, adapter = played
        upstream.script({"prepare": {"7": ["size:12"]}})
        prepared = adapter.prepare(7)
        assert json.loads(prepared.text) == {"gid": 7, "name": "gallery 7", "size": 12}
        assert prepared.quantity == 12

    def test_a_missing_size_counts_as_one(self):
        answer = b'{"gid": 7, "name": "n", "digits": 1.10}'
        with serving(answer) as url:
            prepared = HttpUpstream(url=url, timeout_ms=1000).prepare(7)
        assert prepared == Prepared(answer.decode(), 1)

    @pytest.mark.parametrize("word", ["refuse", "error", "drop", "garbage", "bad_size", "slow:3000"])
    def test_every_failure_is_said_with_the_upstreams_word(self, played, word):
        upstream, adapter = played
        upstream.script({"prepare": {"7": [word]}})
        with pytest.raises(UpstreamFailed) as failed:
            adapter.prepare(7)
        detail = failed.value.details[0]
        assert detail["step"] == "prepare"
        assert detail["request"] == "GET /galleries/7"
        assert "status" in detail or "fault" in detail
        assert TOKEN not in json.dumps(failed.value.as_json())

    def test_a_refusal_carries_what_the_upstream_said(self, played):
        upstream, adapter = played
        upstream.script({"prepare": {"7": ["refuse"]}})
        with pytest.raises(UpstreamFailed) as failed:
            adapter.prepare(7)
        assert failed.value.details[0]["status"] == 404
        assert "gallery 7 does not exist" in failed.value.details[0]["answer"]


class TestSubmit:
    @pytest.mark.parametrize("word", ["accept", "accept_200"])
    def test_a_json_object_with_200_or_201_is_accepted(self, played, word):
        outcome = submit(played, word)
        assert outcome.result is SubmitResult.ACCEPTED
        assert played[0].submissions["7"] == [OPERATION_ID]

    def test_4xx_is_an_explicit_refusal(self, played):
        outcome = submit(played, "refuse")
        assert outcome.result is SubmitResult.REFUSED
        assert refusal(outcome).details[0]["status"] == 422
        assert "may not be submitted" in refusal(outcome).details[0]["answer"]

    @pytest.mark.parametrize(
        ("word", "effects", "fault"),
        [
            ("error", 0, None),
            ("error_after_effect", 1, None),
            ("drop_before_effect", 0, CallFault.CONNECTION_BROKEN),
            ("drop_after_effect", 1, CallFault.CONNECTION_BROKEN),
            ("slow:3000", 1, CallFault.TIMED_OUT),
            ("slow_before_effect:3000", 0, CallFault.TIMED_OUT),
            ("drip", 1, CallFault.TIMED_OUT),
            ("garbage", 1, None),
            ("not_json", 1, None),
            ("array", 1, None),
            ("accepted_202", 1, None),
            ("redirect", 0, None),
            ("not_http", 1, CallFault.NOT_HTTP),
            ("long", 1, CallFault.ANSWER_TOO_LONG),
        ],
    )
    def test_anything_else_is_unknown_and_asked_once(self, played, word, effects, fault):
        outcome = submit(played, word)
        assert outcome.result is SubmitResult.UNKNOWN
        assert outcome.evidence.get("fault") == (None if fault is None else fault.value)
        assert len(played[0].submissions["7"]) == effects
        assert sum(entry["step"] == "submit" for entry in played[0].journal) == 1

    def test_an_answer_that_was_cut_is_unknown(self, played):
        outcome = submit(played, "cut")
        assert outcome.result is SubmitResult.UNKNOWN
        assert outcome.evidence["fault"] in ("NOT_HTTP", "CONNECTION_BROKEN")

    def test_no_connection_is_unknown_too(self):
        """一律: what is not an explicit answer is never guessed; the evidence says that nothing was sent."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            adapter = HttpUpstream(url=f"http://127.0.0.1:{unused.getsockname()[1]}", timeout_ms=1000)
            outcome = adapter.submit(Prepared("{}", 1), gid=7, operation_id=OPERATION_ID)
        assert outcome.result is SubmitResult.UNKNOWN
        assert outcome.evidence["fault"] == "NOT_CONNECTED"

    def test_the_request_carries_the_prepared_object_digit_for_digit(self):
        prepared = '{"gid":7,"price":1.10,"big":9007199254740993,"e":1e400}'
        with serving(b"{}", status=201) as url:
            HttpUpstream(url=url, timeout_ms=1000).submit(Prepared(prepared, 1), gid=7, operation_id=OPERATION_ID)
            head, _, body = serving.requests[-1].partition(b"\r\n\r\n")
        assert body.decode() == f'{{"gid":7,"operation_id":"{OPERATION_ID}","prepared":{prepared}}}'
        assert head.startswith(b"POST /submissions HTTP/1.1\r\n")

    def test_the_token_is_sent_and_never_kept(self, played):
        outcome = submit(played, "accept")
        assert outcome.result is SubmitResult.ACCEPTED  # the fake refuses other tokens
        assert TOKEN not in json.dumps(outcome.evidence)
        assert TOKEN not in repr(played[1])


class TestLookup:
    def test_it_tells_what_the_upstream_knows(self, played):
        _, adapter = played
        assert adapter.lookup(7).found is False
        submit(played, "drop_after_effect")
        looked_up = adapter.lookup(7)
        assert looked_up.found is True
        assert OPERATION_ID in looked_up.evidence["answer"]

    @pytest.mark.parametrize("word", ["error", "drop"])
    def test_an_upstream_that_cannot_say_has_not_said_no(self, played, word):
        upstream, adapter = played
        upstream.script({"lookup": {"7": [word]}})
        with pytest.raises(UpstreamFailed):
            adapter.lookup(7)


class TestBounds:
    def test_one_deadline_covers_the_whole_call_however_the_bytes_trickle(self, played):
        upstream, adapter = played
        upstream.script({"submit": {"7": ["drip"]}})
        started = time.monotonic()
        adapter.submit(Prepared("{}", 1), gid=7, operation_id=OPERATION_ID)
        assert time.monotonic() - started < 5  # the drip would last 50 s

    def test_an_answer_of_just_the_limit_is_read_and_one_byte_more_is_not(self):
        for extra, fault in ((0, None), (1, CallFault.ANSWER_TOO_LONG)):
            body = b"[" + b" " * (UPSTREAM_ANSWER_BYTES_MAX - 2 + extra) + b"]"
            with serving(body) as url:
                answer = call_once("GET", url, timeout_ms=5000, body_bytes_max=UPSTREAM_ANSWER_BYTES_MAX)
            assert answer.fault is fault
            assert len(answer.body) == UPSTREAM_ANSWER_BYTES_MAX

    def test_proxies_of_the_environment_are_not_asked(self, played, monkeypatch):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        assert submit(played, "accept").result is SubmitResult.ACCEPTED

    def test_an_excerpt_is_short_and_has_no_control_characters(self):
        shown = excerpt(b"a\x1b[31m\r\nb\xff" + b"x" * 100_000)
        assert len(shown) == 2000
        assert shown.isprintable()


class serving:
    """One canned answer over a raw socket, so that not even the fake stands between."""

    requests: list[bytes] = []

    def __init__(self, body: bytes, *, status: int = 200) -> None:
        self._answer = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *unused: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            request = connection.recv(65536)
            while b"Content-Length" in request and b"}" not in request.partition(b"\r\n\r\n")[2]:
                request += connection.recv(65536)
            self.requests.append(request)
            connection.sendall(self._answer)
