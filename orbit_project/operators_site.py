"""How the operators' site is laid out: its names, its navigation, what its theme loads (all of it from this node)."""

from __future__ import annotations

from typing import Any

from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _


def _item(title: Any, icon: str, url_name: str, right: str, *, query: str = "", **more: Any) -> dict[str, Any]:
    return {
        "title": title,
        "icon": icon,
        "link": (lambda request: f"{reverse_lazy(url_name)}{query}") if query else reverse_lazy(url_name),
        "permission": lambda request: request.user.has_perm(right),
        **more,
    }


def _page(title: Any, icon: str, model: str, **more: Any) -> dict[str, Any]:
    app, name = model.split(".")
    return _item(title, icon, f"admin:{app}_{name}_changelist", f"{app}.view_{name}", **more)


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Orbit",
    "SITE_HEADER": "Orbit",
    "SITE_SYMBOL": "orbit",
    "SITE_URL": None,
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("orbit/icon.svg")},
    ],
    "SHOW_HISTORY": False,  # nothing is edited here; who did what stands in the audit trail
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_LANGUAGES": True,
    "DASHBOARD_CALLBACK": "tasks_app.admin.start_page.dashboard",
    "STYLES": [lambda request: static("orbit/admin.css")],
    "SCRIPTS": [lambda request: static("orbit/admin.js")],
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": [
            {
                "title": _("Now"),
                "items": [
                    {
                        "title": _("What needs a person"),
                        "icon": "notifications_active",
                        "link": reverse_lazy("admin:index"),
                    },
                    _page(
                        _("Unknown outcomes"),
                        "help",
                        "tasks_app.task",
                        query="?attention=UNKNOWN",
                        badge="tasks_app.admin.start_page.unknown_badge",
                    ),
                    _item(
                        _("Dead letters"),
                        "mail_off",
                        "admin:tasks_app_dead_letters",
                        "tasks_app.view_task",
                        badge="tasks_app.admin.start_page.dead_badge",
                    ),
                    _item(_("Backlog"), "grid_on", "admin:tasks_app_queue_backlog", "tasks_app.view_queue"),
                    _item(_("Fairness"), "balance", "admin:tasks_app_fairness", "tasks_app.view_application"),
                    _page(_("Operations"), "cloud_sync", "lifecycle_app.operationintent"),
                ],
            },
            {
                "title": _("Work"),
                "separator": True,
                "items": [
                    _page(_("Tasks"), "task", "tasks_app.task"),
                    _page(_("Attempts"), "directions_run", "tasks_app.attempt"),
                    _page(_("Events"), "timeline", "tasks_app.event"),
                    _page(_("Queues"), "line_weight", "tasks_app.queue"),
                    _page(_("Plans"), "event_repeat", "tasks_app.plan"),
                    _page(_("Resource keys"), "lock", "tasks_app.resourcekey"),
                ],
            },
            {
                "title": _("Machines"),
                "separator": True,
                "items": [
                    _page(_("Workers"), "engineering", "workers_app.workersession"),
                    _page(_("Nodes"), "dns", "tasks_app.node"),
                    _page(_("Storage nodes"), "storage", "lifecycle_app.storagenode"),
                ],
            },
            {
                "title": _("Tenants"),
                "separator": True,
                "items": [
                    _page(_("Applications"), "apartment", "tasks_app.application"),
                    _page(_("Namespaces"), "folder", "tasks_app.namespace"),
                    _page(_("Credentials"), "key", "tasks_app.credential"),
                    _page(_("Audit"), "policy", "tasks_app.auditentry"),
                ],
            },
        ],
    },
}
