"""`manage.py orbit_credential issue|list|revoke|rotate`: each token is written once, into a file of its owner."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tasks_app.domain import applications, audit
from tasks_app.domain.applications import CredentialView, NamespaceView
from tasks_app.domain.tenancy import IssuedCredential, revoke_credential, rotate_credential
from tasks_app.instants import format_rfc3339
from tasks_app.management import arguments, tables
from tasks_app.management.credential_files import members_of, write_credential_file
from tasks_app.transactions import unit

ACTOR = audit.command("orbit_credential")
HEADINGS = ("CREDENTIAL", "TOKEN", "APPLICATION", "NAMESPACE", "STATUS", "EXPIRES", "LAST USED", "QUEUES", "ACTIONS")
_MOMENTS = ("created_at", "expires_at", "revoked_at", "last_used_at")


class Command(BaseCommand):
    help = "Issue, list, revoke and rotate credentials. A token is never printed; it is written once, into --output."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        issue = verbs.add_parser("issue", help="a new credential")
        issue.add_argument("--application", required=True, metavar="A")
        issue.add_argument("--namespace", required=True, metavar="N")
        issue.add_argument("--queue-scope", action="append", metavar="Q", help="confine to this queue; may be repeated")
        issue.add_argument(
            "--actions", type=arguments.actions, metavar="A,B", help="all of tasks:* queues:* plans:* operations:*"
        )
        issue.add_argument("--expires-in", type=arguments.seconds, metavar="S", help="never unless given")
        _add_output(issue)
        found = verbs.add_parser("list", help="every credential, without its token")
        found.add_argument("--application", metavar="A")
        found.add_argument("--namespace", metavar="N")
        found.add_argument("--json", action="store_true", help="for programs: one JSON array")
        revoke = verbs.add_parser("revoke", help="end a credential at once; connected workers are cut within 5 s")
        revoke.add_argument("credential_id", metavar="ID")
        revoke.add_argument("--reason", help="kept in the audit")
        rotate = verbs.add_parser("rotate", help="a new credential with the same rights; the old one ends")
        rotate.add_argument("credential_id", metavar="ID")
        rotate.add_argument(
            "--overlap",
            required=True,
            type=arguments.overlap_seconds,
            metavar="S",
            help="how long the old one still works",
        )
        _add_output(rotate)

    def handle(self, *args: Any, **options: Any) -> None:
        verb: Callable[[dict[str, Any]], str] = {
            "issue": _issue, "list": _list, "revoke": _revoke, "rotate": _rotate,
        }[options["verb"]]  # fmt: skip
        with arguments.told_as_command_errors():
            self.stdout.write(verb(options))


def _add_output(parser: CommandParser) -> None:
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help="must not exist; mode 0600")


def _issue(options: dict[str, Any]) -> str:
    def issue() -> Mapping[str, Any]:
        return _members(
            *applications.issue(
                options["application"],
                options["namespace"],
                actions=options["actions"] or arguments.default_actions(),
                queue_scope=None if options["queue_scope"] is None else tuple(dict.fromkeys(options["queue_scope"])),
                expires_in_seconds=options["expires_in"],
                actor=ACTOR,
            )
        )

    return _written(options["output"], issue)


def _list(options: dict[str, Any]) -> str:
    found = applications.credentials(application=options["application"], namespace=options["namespace"])
    if options["json"]:
        return json.dumps([_as_json(one) for one in found], ensure_ascii=False, indent=2)
    return tables.table(HEADINGS, [_as_row(one) for one in found])


def _revoke(options: dict[str, Any]) -> str:
    identity = options["credential_id"]
    done = unit(lambda tx: revoke_credential(tx, identity, actor=ACTOR, reason=options["reason"]))
    return f"credential {identity} {'is revoked' if done else 'had been revoked before'}"


def _rotate(options: dict[str, Any]) -> str:
    identity = options["credential_id"]
    namespace = applications.namespace_of_credential(identity)

    def rotate() -> Mapping[str, Any]:
        issued = unit(lambda tx: rotate_credential(tx, identity, overlap_seconds=options["overlap"], actor=ACTOR))
        return _members(namespace, issued)

    written = _written(options["output"], rotate)
    return f"{written}\ncredential {identity} ends in {options['overlap']} s"


def _written(path: Path, issue: Callable[[], Mapping[str, Any]]) -> str:
    issued: list[Mapping[str, Any]] = []

    def remembered() -> Mapping[str, Any]:
        issued.append(issue())
        return issued[0]

    write_credential_file(
        path, remembered, undo=lambda identity: unit(lambda tx: revoke_credential(tx, identity, actor=ACTOR))
    )
    return f"credential {issued[0]['credential_id']} → {path} (mode 0600)"


def _members(namespace: NamespaceView, issued: IssuedCredential) -> Mapping[str, Any]:
    return members_of(
        application_id=namespace.application_id,
        namespace_id=namespace.namespace_id,
        policy=namespace.policy,
        queues=namespace.queues,
        issued=issued,
    )


def _as_row(one: CredentialView) -> tuple[str, ...]:
    status = one.status if one.rotated_to is None else f"{one.status}, rotated to {one.rotated_to}"
    return (
        one.credential_id,
        f"{one.token_prefix}…",
        one.application,
        one.namespace,
        status,
        tables.moment(one.expires_at),
        tables.moment(one.last_used_at),
        "all" if one.queues is None else ", ".join(one.queues),
        " ".join(one.actions),
    )


def _as_json(one: CredentialView) -> dict[str, Any]:
    members = dataclasses.asdict(one)
    for name in _MOMENTS:
        members[name] = None if members[name] is None else format_rfc3339(members[name])
    return members
