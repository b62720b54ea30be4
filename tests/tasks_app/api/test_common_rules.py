"""Design 1.1: credentials, envelope, order of refusals, tenancy. One table of every operation, walked in every way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import OperationalError
from django.urls import URLPattern, URLResolver, get_resolver

from tasks_app.api import authentication
from tasks_app.api.endpoints import Endpoint, contract_of
from tasks_app.api.errors import STATUS
from tasks_app.domain import task_reads, tenancy
from tasks_app.domain.audit import SYSTEM
from tasks_app.errors import OrbitError
from tasks_app.limits import BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX
from tasks_app.states import Action
from tasks_app.transactions import unit
from tests.tasks_app import factories
from tests.tasks_app.api.callers import Answer, Caller
from tests.tasks_app.factories import Tenant, make_tenant

ABSENT = "0" * 32


@dataclass(frozen=True)
class Case:
    """One operation with a request that is valid as it stands. `{task}` and `{queue}` in the path are ids."""

    method: str
    path: str
    action: Action
    success: int
    body: Callable[[Caller], Any] | None = None
    key: str | None = None
    queue_in_body: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def is_about_an_object(self) -> bool:
        return "{" in self.path

    def call(self, caller: Caller, *, task: str = ABSENT, queue: str = ABSENT, **more: Any) -> Answer:
        body = self.body(caller) if self.body is not None else None
        more = {"key": self.key, **more} if self.key else more
        if "content" in more:
            body = None
        return caller.call(self.method, self.path.format(task=task, queue=queue), body, **more)


CASES = [
    Case("POST", "/v1/tasks", Action.TASKS_SUBMIT, 201, lambda c: c.task_body(), key="k", queue_in_body=True),
    Case(
        "POST",
        "/v1/tasks:batch",
        Action.TASKS_SUBMIT,
        200,
        lambda c: {"items": [{"idempotency_key": "b", "task": c.task_body()}]},
    ),
    Case("GET", "/v1/tasks", Action.TASKS_READ, 200),
    Case("GET", "/v1/tasks/{task}", Action.TASKS_READ, 200),
    Case("GET", "/v1/tasks/{task}/events", Action.TASKS_READ, 200),
    Case("POST", "/v1/tasks/{task}:cancel", Action.TASKS_CANCEL, 200, lambda c: {"revision": "1"}),
    Case(
        "POST",
        "/v1/tasks/{task}:reconcile",
        Action.TASKS_RECONCILE,
        409,
        lambda c: {"revision": "1", "decision": "RETRY", "reason": "looked"},
    ),
    Case("POST", "/v1/tasks/{task}:replay", Action.TASKS_REPLAY, 409, lambda c: {}, key="k"),
    Case(
        "POST",
        "/v1/tasks:replay",
        Action.TASKS_REPLAY,
        200,
        lambda c: {"queue_id": c.task_body()["queue_id"], "limit": 500},
        key="k",
    ),
    Case(
        "POST",
        "/v1/tasks/{task}:dismiss",
        Action.TASKS_REPLAY,
        409,
        lambda c: {"revision": "1", "reason": "looked"},
    ),
    Case("GET", "/v1/events", Action.TASKS_READ, 200),
    Case("POST", "/v1/queues", Action.QUEUES_MANAGE, 201, lambda c: {"name": "another"}),
    Case("GET", "/v1/queues", Action.QUEUES_READ, 200),
    Case("GET", "/v1/queues/{queue}", Action.QUEUES_READ, 200),
    Case("PATCH", "/v1/queues/{queue}", Action.QUEUES_MANAGE, 200, lambda c: {"revision": "1", "max_running": 3}),
    Case("POST", "/v1/queues/{queue}:pause", Action.QUEUES_MANAGE, 200),
    Case("POST", "/v1/queues/{queue}:resume", Action.QUEUES_MANAGE, 200),
    Case("GET", "/v1/queues/{queue}/stats", Action.QUEUES_READ, 200),
]
every_operation = pytest.mark.parametrize("case", CASES, ids=str)
with_an_object = pytest.mark.parametrize("case", [case for case in CASES if case.is_about_an_object], ids=str)
with_a_body = pytest.mark.parametrize("case", [case for case in CASES if case.method in ("POST", "PATCH")], ids=str)
without_a_body = pytest.mark.parametrize("case", [case for case in CASES if case.method == "GET"], ids=str)


def endpoints() -> list[tuple[str, type[Endpoint]]]:
    """(path, view) of every view under /v1 that this app serves."""
    found = []

    def walk(patterns: list[Any], prefix: str) -> None:
        for pattern in patterns:
            route = prefix + str(pattern.pattern)
            if isinstance(pattern, URLResolver):
                walk(pattern.url_patterns, route)
            elif isinstance(pattern, URLPattern) and route.startswith("v1"):
                view = getattr(pattern.callback, "view_class", None) or getattr(pattern.callback, "cls", None)
                if view is not None and view.__module__.startswith("tasks_app."):
                    found.append((route, view))

    walk(get_resolver().url_patterns, "")
    return found


# -- the table is whole


def test_every_view_of_the_api_is_an_endpoint_and_every_method_of_it_is_declared():
    for route, view in endpoints():
        assert issubclass(view, Endpoint), f"{route} is not an Endpoint: nothing would be asked of its callers"
        methods = [name for name in ("get", "post", "put", "patch", "delete") if callable(getattr(view, name, None))]
        undeclared = [name for name in methods if contract_of(view, name) is None]
        assert not undeclared, f"{route} has methods without a declaration: {undeclared}"


def test_every_operation_of_this_app_is_in_the_table_with_its_action():
    served = {
        (method.upper(), re.sub("<segment:(task|queue)_id>", r"{\1}", f"/{route}"), contract.action)
        for route, view in endpoints()
        for method in ("get", "post", "put", "patch", "delete")
        if (contract := contract_of(view, method)) is not None
    }
    assert served == {(case.method, case.path, case.action) for case in CASES}


# -- credentials


@pytest.fixture
def task(tenant: Tenant) -> str:
    return factories.submit(tenant)


@every_operation
def test_the_right_action_alone_is_enough(case: Case, tenant: Tenant, task: str):
    caller = Caller.of(tenant, actions=[case.action])
    case.call(caller, task=task, queue=tenant.queue_id).expect(case.success)


@every_operation
def test_all_other_actions_together_are_not_enough(case: Case, tenant: Tenant, task: str):
    before = factories.snapshot()
    caller = Caller.of(tenant, actions=[action for action in Action if action is not case.action])
    answer = case.call(caller, task=task, queue=tenant.queue_id).expect(403, "PERMISSION_DENIED")
    assert answer.error["details"][0]["action"] == case.action
    for table in ("orbit_task", "orbit_event", "orbit_queue", "orbit_idempotency_record"):
        assert factories.snapshot()[table] == before[table]


@every_operation
def test_no_credential_is_401_with_a_challenge_that_names_no_error(case: Case, tenant: Tenant, task: str):
    answer = case.call(Caller(None, tenant), task=task, queue=tenant.queue_id).expect(401, "UNAUTHENTICATED")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


WRONG_HEADERS = [
    "Bearer orbit_wrong",
    "Bearer ",
    "Bearer",
    "Basic dXNlcjpwYXNz",
    "orbit_x",
    "Bearer a b",
    "Bearer é",
    "",
]


@every_operation
def test_a_wrong_credential_is_401_with_a_challenge(case: Case, tenant: Tenant, task: str):
    for header in WRONG_HEADERS:
        answer = case.call(Caller(None, tenant), task=task, queue=tenant.queue_id, HTTP_AUTHORIZATION=header)
        assert answer.expect(401, "UNAUTHENTICATED").headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'


@every_operation
def test_a_revoked_or_expired_credential_is_like_one_that_never_was(case: Case, tenant: Tenant, task: str):
    revoked, expired, unknown = Caller.of(tenant), Caller.of(tenant), Caller("orbit_" + "x" * 43, tenant)
    unit(lambda tx: tenancy.revoke_credential(tx, tenancy.authenticate(revoked.token).credential_id, actor=SYSTEM))
    expire(expired)
    answers = [case.call(caller, task=task, queue=tenant.queue_id) for caller in (revoked, expired, unknown)]
    assert len({(answer.status, answer.code, answer.error["message"]) for answer in answers}) == 1
    assert answers[0].status == 401


def expire(caller: Caller) -> None:
    credential = tenancy.authenticate(str(caller.token)).credential_id
    sql = "UPDATE orbit_credential SET created_at = 1, expires_at = 2 WHERE credential_id = %s"
    unit(lambda tx: tx.execute(sql, [credential]))


def test_the_scheme_of_the_credential_is_read_in_any_case_and_a_second_header_is_refused(caller: Caller):
    plain = Caller(None, caller.tenant)
    for scheme in ("bearer", "BEARER", "Bearer  "):
        plain.get("/v1/queues", HTTP_AUTHORIZATION=f"{scheme} {caller.token}").expect(200)
    repeated = {"orbit.repeated_headers": frozenset({"authorization"})}
    plain.get("/v1/queues", HTTP_AUTHORIZATION=f"Bearer {caller.token}", **repeated).expect(401)


def test_past_20_failures_a_minute_failing_requests_hear_429_and_a_valid_credential_is_never_blocked(caller: Caller):
    wrong = Caller("orbit_wrong", caller.tenant)
    assert [wrong.get("/v1/queues").status for _ in range(20)] == [401] * 20
    answer = wrong.get("/v1/queues").expect(429, "RATE_LIMITED")
    assert answer.error["retry_after_ms"] > 0
    assert int(answer.headers["Retry-After"]) >= 1
    caller.get("/v1/queues").expect(200)
    wrong.get("/v1/queues").expect(429)
    wrong.get("/v1/queues", REMOTE_ADDR="192.0.2.7").expect(401)


# -- tenancy


@with_an_object
def test_an_object_of_another_namespace_does_not_exist(case: Case, caller: Caller, foreign_caller: Caller):
    assert foreign_caller.tenant is not None
    foreign_task, foreign_queue = factories.submit(foreign_caller.tenant), foreign_caller.tenant.queue_id
    foreign = case.call(caller, task=foreign_task, queue=foreign_queue).expect(404, "NOT_FOUND")
    absent = case.call(caller, task=ABSENT, queue=ABSENT).expect(404, "NOT_FOUND")
    assert foreign.error == absent.error
    assert varying(foreign) == varying(absent)


def varying(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "X-Request-Id"}


@with_an_object
def test_an_object_in_a_queue_outside_the_scope_is_403_by_id(case: Case, tenant: Tenant, task: str):
    other = tenant.queue()
    caller = Caller.of(tenant, queue_ids=[other])
    case.call(caller, task=task, queue=tenant.queue_id).expect(403, "PERMISSION_DENIED")


def test_what_is_outside_the_scope_is_left_out_of_lists_and_feeds(tenant: Tenant, task: str):
    other = tenant.queue()
    visible = factories.submit(tenant, queue_id=other)
    caller = Caller.of(tenant, queue_ids=[other])
    assert [item["task_id"] for item in caller.get("/v1/tasks").data["items"]] == [visible]
    assert [item["queue_id"] for item in caller.get("/v1/queues").data["items"]] == [other]
    assert {item["task_id"] for item in caller.get("/v1/events").data["items"]} == {visible}
    assert {item["task_id"] for item in Caller.of(tenant).get("/v1/tasks").data["items"]} == {task, visible}


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/queues", "/v1/events"])
def test_lists_show_nothing_of_another_namespace(path: str, caller: Caller, foreign_caller: Caller):
    assert foreign_caller.tenant is not None
    factories.submit(foreign_caller.tenant)
    shown = json.dumps(caller.get(path).data)
    assert foreign_caller.tenant.queue_id not in shown
    assert foreign_caller.get(path).data["items"]


@with_an_object
def test_a_malformed_id_in_a_path_is_400(case: Case, caller: Caller):
    for malformed in ("x", "0" * 31, "0" * 33, "A" * 32, "g" * 32, "0" * 31 + "%00"):
        case.call(caller, task=malformed, queue=malformed).expect(400, "INVALID_ARGUMENT")


# -- order of refusals: each request breaks this rule and all that are judged after it


@with_a_body
def test_a_wrong_method_comes_before_a_missing_credential(case: Case, tenant: Tenant):
    caller = Caller(None, tenant)
    answer = caller.call("DELETE", case.path.format(task=ABSENT, queue=ABSENT), content="x", content_type="text/plain")
    answer.expect(405, "METHOD_NOT_ALLOWED")


@with_a_body
def test_a_body_too_large_comes_before_a_missing_credential(case: Case, tenant: Tenant):
    limit = BATCH_BODY_BYTES_MAX if case.path.endswith(":batch") else BODY_BYTES_MAX
    caller = Caller(None, tenant)
    case.call(caller, content="x" * (limit + 1), content_type="text/plain").expect(413, "PAYLOAD_TOO_LARGE")
    case.call(caller, content="x" * limit, content_type="text/plain").expect(401)


@with_a_body
def test_a_missing_credential_comes_before_everything_about_the_request(case: Case, tenant: Tenant):
    case.call(Caller(None, tenant), task="x", queue="x", content="{", content_type="text/plain").expect(401)


@with_a_body
def test_a_missing_action_comes_before_the_media_type(case: Case, tenant: Tenant):
    caller = Caller.of(tenant, actions=[action for action in Action if action is not case.action])
    case.call(caller, task="x", queue="x", content="{", content_type="text/plain").expect(403)


@with_a_body
def test_the_media_type_comes_before_what_is_malformed(case: Case, caller: Caller):
    answer = case.call(caller, task="x", queue="x", content="{", content_type="text/plain")
    assert answer.expect(415, "UNSUPPORTED_MEDIA_TYPE").headers["Accept"] == "application/json"


@with_a_body
def test_what_is_malformed_comes_before_the_object(case: Case, caller: Caller):
    case.call(caller, content='{"unknown": 1}').expect(400)


# -- bodies


OTHER_MEDIA_TYPES = [
    None,
    "text/json",
    "application/json; charset=latin-1",
    "application/json; charset=utf-16",
    "application/json; version=1",
    "application/json;",
    "application/json, application/json",
    "application/vnd.api+json",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded",
]


@with_a_body
def test_another_media_type_is_415(case: Case, caller: Caller):
    for content_type in OTHER_MEDIA_TYPES:
        case.call(caller, content="{}", content_type=content_type).expect(415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON", "application/json;charset=utf-8", 'application/json; charset="UTF-8"'],
)
def test_json_in_utf_8_is_accepted_in_any_case(content_type: str, caller: Caller):
    caller.post("/v1/queues", {"name": "q"}, content_type=content_type).expect(201)


@with_a_body
def test_any_content_encoding_is_415(case: Case, caller: Caller):
    for encoding in ("gzip", "identity", ""):
        answer = case.call(caller, content="{}", HTTP_CONTENT_ENCODING=encoding)
        assert answer.expect(415).fields == ["Content-Encoding"]


@without_a_body
def test_get_takes_no_body(case: Case, caller: Caller):
    case.call(caller, content="{}").expect(400, "INVALID_ARGUMENT")


@with_a_body
def test_the_body_is_an_object(case: Case, caller: Caller):
    for content in ("[]", "null", '"x"', "1", "true"):
        case.call(caller, content=content).expect(400, "INVALID_ARGUMENT")


@with_a_body
def test_an_action_whose_fields_are_all_optional_takes_an_empty_object_or_nothing(
    case: Case, caller: Caller, tenant: Tenant, task: str
):
    optional = case.path.endswith((":pause", ":resume", "}:replay"))
    for content in (None, "{}"):
        answer = case.call(caller, task=task, queue=tenant.queue_id, content=content)
        answer.expect(case.success if optional else 400)


NO_STRICT_JSON = [
    b"\xef\xbb\xbf{}",
    b'{"a": "\xff"}',
    b'{"a": "\\ud800"}',
    b'{"a": NaN}',
    b"{} {}",
    b'{"a": 1, "a": 2}',
    b"[" * 100_000,
    b"{",
    b" ",
]


@with_a_body
def test_what_is_no_strict_json_is_400_at_every_door(case: Case, caller: Caller):
    for content in NO_STRICT_JSON:
        case.call(caller, content=content).expect(400, "INVALID_ARGUMENT")


@every_operation
def test_an_unknown_query_parameter_is_400(case: Case, caller: Caller, tenant: Tenant, task: str):
    answer = case.call(caller, task=task, queue=tenant.queue_id, QUERY_STRING="surprise=1")
    assert answer.expect(400).fields == ["surprise"]


# -- the envelope


@every_operation
def test_a_success_is_an_envelope_of_request_id_and_data(case: Case, caller: Caller, tenant: Tenant, task: str):
    answer = case.call(caller, task=task, queue=tenant.queue_id).expect(case.success)
    body = answer.json
    assert set(body) == {"request_id", "data" if answer.status < 400 else "error"}
    assert re.fullmatch("[0-9a-f]{32}", body["request_id"])
    assert answer.headers["X-Request-Id"] == body["request_id"]
    assert answer.headers["Content-Type"] == "application/json"


@every_operation
def test_a_client_s_own_request_id_is_not_adopted(case: Case, caller: Caller):
    answer = case.call(caller, HTTP_X_REQUEST_ID="mine")
    assert answer.headers["X-Request-Id"] == answer.json["request_id"] != "mine"


@every_operation
def test_a_valid_traceparent_is_continued_and_an_invalid_one_is_ignored(case: Case, caller: Caller):
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    answer = case.call(caller, HTTP_TRACEPARENT=f"00-{trace}-{span}-01")
    assert re.fullmatch(rf"00-{trace}-(?!{span})[0-9a-f]{{16}}-01", answer.headers["traceparent"])
    without = case.call(caller, HTTP_TRACEPARENT="00-nonsense")
    assert without.status < 500
    assert "traceparent" not in without.headers


@without_a_body
def test_head_is_get_without_its_body(case: Case, caller: Caller, tenant: Tenant, task: str):
    path = case.path.format(task=task, queue=tenant.queue_id)
    got, head = caller.get(path).expect(200), caller.call("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    assert abs(int(head.headers["Content-Length"]) - len(got.body)) < 16  # what changes with time may have more digits
    assert head.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("path", sorted({case.path for case in CASES}))
def test_a_method_that_the_path_does_not_know_is_405_with_those_it_knows(path: str, caller: Caller):
    known = {case.method for case in CASES if case.path == path}
    known |= {"HEAD"} if "GET" in known else set()
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} - known:
        answer = caller.call(method, path.format(task=ABSENT, queue=ABSENT)).expect(405, "METHOD_NOT_ALLOWED")
        assert set(answer.headers["Allow"].split(", ")) == known


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_every_path_under_v1_answers_in_the_envelope(method: str, caller: Caller):
    for path in (
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/v1/tasks/",
        "/v1/tasks:unknown",
        f"/v1/tasks/{ABSENT}:frobnicate",
        f"/v1/tasks/{ABSENT}/unknown",
        f"/v1/queues/{ABSENT}/",
        "/v1/../admin/",
        "/v1/é",
        "/v1/%00",
        "/v1/tasks%2Fx/y",
    ):
        for client in (caller, Caller(None, caller.tenant)):
            answer = client.call(method, path).expect(404, "NOT_FOUND")
            assert answer.headers["X-Request-Id"] == answer.json["request_id"]


def test_the_address_of_a_verb_may_be_escaped(caller: Caller, task: str):
    caller.post(f"/v1/tasks/{task}%3Acancel", {"revision": "1"}).expect(200)


@every_operation
def test_a_host_that_is_not_served_is_400_in_the_envelope(case: Case, caller: Caller):
    answer = case.call(caller, HTTP_HOST="evil.example").expect(400, "INVALID_ARGUMENT")
    assert "evil" not in answer.body.decode()


# -- failures of ours


def test_a_database_that_does_not_answer_is_503_with_retry_after(caller: Caller, task: str, monkeypatch):
    def fail(*_: Any) -> None:
        raise OperationalError(2003, "Can't connect to server on 'db.internal'")

    monkeypatch.setattr(task_reads, "get", fail)
    answer = caller.get(f"/v1/tasks/{task}").expect(503, "UNAVAILABLE")
    assert answer.headers["Retry-After"] == "1"
    assert answer.error["retry_after_ms"] == 1000
    assert "db.internal" not in answer.body.decode()
    monkeypatch.setattr(authentication.tenancy, "authenticate", fail)
    caller.get("/v1/queues").expect(503, "UNAVAILABLE")


def test_a_fault_of_ours_is_500_without_its_words(caller: Caller, task: str, monkeypatch, caplog):
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a secret of the implementation")

    monkeypatch.setattr(task_reads, "get", fail)
    answer = caller.get(f"/v1/tasks/{task}").expect(500, "INTERNAL")
    assert "secret" not in answer.body.decode()
    assert set(answer.error) == {"code", "message"}
    assert any(record.exc_info for record in caplog.records)


def test_the_table_of_statuses_has_every_code_of_the_error_tree_and_no_other():
    def codes(kind: type[OrbitError]) -> set[str]:
        return {kind.code}.union(*(codes(child) for child in kind.__subclasses__()))

    assert codes(OrbitError) == set(STATUS)


def test_a_refusal_never_echoes_the_payload(caller: Caller):
    marker = "marker-7f3a"
    for members in ({"payload": marker, "priority": 99}, {"payload": {"a": marker}, "Payload": 1}):
        answer = caller.submit(**members)
        assert answer.status == 400
        assert marker not in answer.body.decode()


def test_two_tenants_of_one_application_are_strangers_too(database: None):
    first = make_tenant(application="shared")
    second = make_tenant(application="shared")
    task_id = factories.submit(first)
    Caller(second.token, second).get(f"/v1/tasks/{task_id}").expect(404)
