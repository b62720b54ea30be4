"""What an operator meets, and what each verb of the site is tried on."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.admin.verbs import Verb
from tasks_app.domain import plans
from tasks_app.domain.audit import SYSTEM
from tasks_app.domain.plan_definitions import read_definition
from tasks_app.endings import Report
from tasks_app.models import Application, Credential, Namespace, Plan, Queue, Task
from tasks_app.strict_json import parse_document
from tests.tasks_app.factories import Tenant, claim_one, finish, lose, make_credential, pause, start, submit

GROUPS = ("viewer", "operator", "admin")


class World:
    """Rows of one tenant, made when they are asked for."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant

    def ready(self, **fields: Any) -> Task:
        return task(submit(self.tenant, **fields))

    def unknown(self) -> Task:
        offer = self.started()
        lose(offer)
        return task(offer.task.task_id)

    def failed(self, **fields: Any) -> Task:
        offer = self.started(**fields)
        finish(offer, Report.FAILED)
        return task(offer.task.task_id)

    def started(self, **fields: Any) -> Any:
        submit(self.tenant, **fields)
        offer = claim_one(self.tenant)
        start(self.tenant, offer)
        return offer

    def queue(self) -> Queue:
        return Queue.objects.select_related("namespace").get(queue_id=self.tenant.queue_id)

    def paused_queue(self) -> Queue:
        pause(self.tenant)
        return self.queue()

    def application(self) -> Application:
        return Application.objects.get(application_id=self.tenant.application_id)

    def namespace(self) -> Namespace:
        return Namespace.objects.get(namespace_id=self.tenant.namespace_id)

    def credential(self) -> Credential:
        return Credential.objects.get(credential_id=make_credential(self.tenant).credential_id)

    def plan(self, *, paused: bool = False) -> Plan:
        document = {
            "schedule": {"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
            "misfire": "FIRE_ONCE",
            "overlap": "ALLOW",
            "task": {
                "queue_id": self.tenant.queue_id,
                "handler": "h",
                "handler_version": "1",
                "payload_version": "1",
                "payload": {"n": 1},
            },
        }
        definition = read_definition(parse_document(json.dumps(document)))
        made = plans.create(self.tenant.principal, f"plan {uuid.uuid4()}", definition, actor=SYSTEM)
        if paused:
            plans.pause(self.tenant.principal, made.plan_id, note="closed", actor=SYSTEM)
        return Plan.objects.get(plan_id=made.plan_id)


def task(task_id: str) -> Task:
    return Task.objects.select_related("namespace").get(task_id=task_id)


# -- verbs


@dataclass(frozen=True)
class Case:
    """How a verb is tried: what it is done to, what is said, who may, and what the audit then holds."""

    make: Callable[[World], Model]
    audited_as: str
    groups: tuple[str, ...]
    said: dict[str, Any]


OPERATORS = ("operator", "admin")
ADMINS = ("admin",)
WHY = {"reason": "I looked"}

CASES: dict[str, Case] = {
    "task.reconcile": Case(World.unknown, "task.reconcile", OPERATORS, {"decision": "FAILED", "result": "", **WHY}),
    "task.cancel": Case(World.ready, "task.cancel", OPERATORS, WHY),
    "task.replay": Case(World.failed, "task.replayed", OPERATORS, {"priority": "3"}),
    "task.dismiss": Case(World.failed, "task.dismiss", OPERATORS, WHY),
    "queue.pause": Case(World.queue, "queue.pause", OPERATORS, WHY),
    "queue.resume": Case(World.paused_queue, "queue.resume", OPERATORS, {}),
    "queue.limits": Case(World.queue, "queue.change", ADMINS, {"max_running": "7", "weight": "1"}),
    "application.quotas": Case(World.application, "application.set", ADMINS, {"max_running": "9"}),
    "namespace.issue-credential": Case(
        World.namespace, "credential.issue", ADMINS, {"actions": ["tasks:read", "tasks:submit"]}
    ),
    "credential.rotate": Case(World.credential, "credential.rotate", ADMINS, {"overlap_seconds": "60"}),
    "credential.revoke": Case(World.credential, "credential.revoke", ADMINS, WHY),
    "plan.pause": Case(World.plan, "plan.pause", OPERATORS, WHY),
    "plan.resume": Case(lambda world: world.plan(paused=True), "plan.resume", OPERATORS, WHY),
    "plan.trigger": Case(World.plan, "plan.trigger", OPERATORS, {}),
}


def pages() -> list[OrbitModelAdmin]:
    """Every page of Orbit's own models."""
    return [page for page in admin.site._registry.values() if isinstance(page, OrbitModelAdmin)]


def verbs() -> dict[str, tuple[OrbitModelAdmin, Verb]]:
    return {f"{page.model._meta.model_name}.{verb.name}": (page, verb) for page in pages() for verb in page.verbs}


def address(name: str, target: Model) -> str:
    page, verb = verbs()[name]
    return page.verb_address(target, verb)


def form_of(client: Client, name: str, target: Model) -> dict[str, Any]:
    """What the page's form would send: the hidden fields as they were drawn, and what the case says."""
    form = client.get(address(name, target)).context["form"]
    hidden = {field.html_name: field.value() or "" for field in form.hidden_fields()}
    return {**hidden, **CASES[name].said}


def detail(target: Model) -> str:
    return reverse(f"admin:{target._meta.app_label}_{target._meta.model_name}_change", args=[target.pk])
