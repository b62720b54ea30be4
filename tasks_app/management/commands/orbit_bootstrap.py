"""`manage.py orbit_bootstrap`: an application, a namespace, queues and one credential, whatever of it is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tasks_app.domain import audit
from tasks_app.domain.bootstrap import BootstrapOrder, Bootstrapped, Superuser, bootstrap
from tasks_app.domain.tenancy import revoke_credential
from tasks_app.management import arguments
from tasks_app.management.credential_files import members_of, write_credential_file
from tasks_app.states import Policy
from tasks_app.transactions import unit

ACTOR = audit.command("orbit_bootstrap")


class Command(BaseCommand):
    help = (
        "Make what is missing of an application, a namespace and its queues, and issue one credential into a file that "
        "only its owner can read. What exists with other values than those given is an error and is left as it is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--application", required=True, metavar="A", help="name of the tenant")
        parser.add_argument("--namespace", required=True, metavar="N", help="name of its namespace")
        parser.add_argument("--environment", required=True, metavar="LABEL", help="for people, such as production")
        parser.add_argument("--policy", choices=Policy.values, help="order of tasks, fixed for ever (AGED)")
        parser.add_argument("--default-priority", type=int, metavar="P", help="STRICT: where nothing else says one (0)")
        parser.add_argument("--resource-limit", type=arguments.limit, metavar="N", help="per resource key (1)")
        parser.add_argument("--app-max-unfinished", type=arguments.limit, metavar="N", help="no limit unless given")
        parser.add_argument("--app-max-running", type=arguments.limit, metavar="N", help="no limit unless given")
        parser.add_argument(
            "--app-start-rate", type=arguments.start_rate, metavar="STARTS/PER_MS", help="no limit unless given"
        )
        parser.add_argument(
            "--weekly-limit", type=arguments.limit, metavar="N", help="operations of one requester in an ISO week"
        )
        parser.add_argument("--queue", action="append", default=[], metavar="Q", help="a queue; may be repeated")
        parser.add_argument("--worker-access", action="store_true", help="the credential may run workers")
        parser.add_argument("--node-access", action="store_true", help="the credential may run storage nodes")
        parser.add_argument(
            "--actions", type=arguments.actions, metavar="A,B",
            help="in place of all of tasks:* queues:* plans:* operations:*",
        )  # fmt: skip
        parser.add_argument(
            "--queue-scope", action="append", metavar="Q", help="confine the credential to this queue; may be repeated"
        )
        parser.add_argument("--expires-in", type=arguments.seconds, metavar="SECONDS", help="never unless given")
        parser.add_argument("--superuser", metavar="NAME", help="a user of the admin site who may do everything")
        parser.add_argument("--superuser-password-file", type=Path, metavar="F", help="its first line is the password")
        parser.add_argument(
            "--output", required=True, type=Path, metavar="FILE", help="where the credential goes; must not exist"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        order = _order(options)
        made: list[Bootstrapped] = []

        def issue() -> dict[str, Any]:
            made.append(bootstrap(order, actor=ACTOR))
            return _members(made[0])

        with arguments.told_as_command_errors():
            write_credential_file(options["output"], issue, undo=_revoke)
        queues = ", ".join(made[0].queues) or "none yet"
        self.stdout.write(
            f"application {order.application}, namespace {order.namespace} ({made[0].policy.value}), queues: {queues}\n"
            f"credential {made[0].credential.credential_id} → {options['output']} (mode 0600)"
        )


def _revoke(credential_id: str) -> None:
    unit(lambda tx: revoke_credential(tx, credential_id, actor=ACTOR))


def _order(options: dict[str, Any]) -> BootstrapOrder:
    extra = arguments.default_actions(workers=options["worker_access"], nodes=options["node_access"])
    if options["actions"] is not None:
        extra = tuple(action for action in extra if action not in arguments.default_actions())
    return BootstrapOrder(
        application=options["application"],
        namespace=options["namespace"],
        environment=options["environment"],
        actions=(*(options["actions"] or ()), *extra),
        policy=None if options["policy"] is None else Policy(options["policy"]),
        default_priority=options["default_priority"],
        resource_limit=options["resource_limit"],
        weekly_limit=options["weekly_limit"],
        application_max_unfinished=options["app_max_unfinished"],
        application_max_running=options["app_max_running"],
        application_start_rate=options["app_start_rate"],
        queues=tuple(dict.fromkeys(options["queue"])),
        queue_scope=None if options["queue_scope"] is None else tuple(dict.fromkeys(options["queue_scope"])),
        expires_in_seconds=options["expires_in"],
        superuser=_superuser(options["superuser"], options["superuser_password_file"]),
    )


def _superuser(name: str | None, password_file: Path | None) -> Superuser | None:
    if (name is None) != (password_file is None):
        raise CommandError("--superuser and --superuser-password-file go together")
    if name is None or password_file is None:
        return None
    try:
        lines = password_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{password_file} cannot be read: {error}") from None
    if not lines or not lines[0]:
        raise CommandError(f"{password_file} has no password in its first line")
    return Superuser(name, lines[0])


def _members(made: Bootstrapped) -> dict[str, Any]:
    return members_of(
        application_id=made.application_id,
        namespace_id=made.namespace_id,
        policy=made.policy,
        queues=made.queues,
        issued=made.credential,
    )
