"""The groups of the operators' site: who looks, who acts, who configures.

Permissions are made by Django after all migrations; those that a group needs are made here, under the same names.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations

VIEWED = {
    "tasks_app": (
        *("application", "namespace", "queue", "handler", "resourcekey", "task", "attempt", "event", "eventhead"),
        *("idempotencyrecord", "plan", "planversion", "planfiring", "node", "auditentry"),
    ),
    "workers_app": ("workersession",),
    "lifecycle_app": (
        *("operationintent", "lifecycletask", "storagenode", "recoveryrun", "notification", "usageentry"),
        *("weeklyusage", "favorite", "reportreceipt"),
    ),
}
VIEWER = [(app, model, f"view_{model}", f"Can view {model}") for app, models in VIEWED.items() for model in models]
OPERATOR = [
    *VIEWER,
    ("tasks_app", "task", "read_payload", "Can read payloads, results and errors"),
    ("tasks_app", "task", "cancel_task", "Can cancel tasks"),
    ("tasks_app", "task", "reconcile_task", "Can reconcile tasks with an unknown outcome"),
    ("tasks_app", "task", "replay_task", "Can replay one task"),
    ("tasks_app", "task", "replay_tasks", "Can replay many tasks at once"),
    ("tasks_app", "task", "dismiss_task", "Can dismiss dead letters"),
    ("tasks_app", "queue", "pause_queue", "Can pause and resume queues"),
    ("tasks_app", "plan", "operate_plan", "Can pause, resume and trigger plans"),
    ("lifecycle_app", "operationintent", "reconcile_operationintent", "Can reconcile operation intents"),
]
ADMIN = [
    *OPERATOR,
    ("tasks_app", "credential", "view_credential", "Can view credential"),
    ("tasks_app", "credentialqueue", "view_credentialqueue", "Can view credentialqueue"),
    ("tasks_app", "credential", "manage_credentials", "Can issue, rotate and revoke credentials"),
    ("tasks_app", "queue", "set_queue_limits", "Can change the limits of queues"),
    ("tasks_app", "application", "set_application_quotas", "Can change the quotas of applications"),
    ("tasks_app", "auditentry", "export_audit", "Can export the audit trail"),
]
GROUPS = {"viewer": VIEWER, "operator": OPERATOR, "admin": ADMIN}


def make_groups(apps: Any, schema_editor: Any) -> None:
    """Repeatable; what an installation has given to a group of that name stays."""
    content_type, permission, group = (
        apps.get_model("contenttypes", "ContentType"),
        apps.get_model("auth", "Permission"),
        apps.get_model("auth", "Group"),
    )
    for name, rights in GROUPS.items():
        made, _ = group.objects.get_or_create(name=name)
        for app, model, codename, words in rights:
            kind, _ = content_type.objects.get_or_create(app_label=app, model=model)
            right, _ = permission.objects.get_or_create(content_type=kind, codename=codename, defaults={"name": words})
            made.permissions.add(right)


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("tasks_app", "0002_operator_rights"),
        ("workers_app", "0001_worker_sessions"),
        ("lifecycle_app", "0001_initial"),
    ]

    operations = [migrations.RunPython(make_groups, migrations.RunPython.noop)]
