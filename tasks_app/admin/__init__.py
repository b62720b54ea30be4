"""The pages of tasks_app in the operators' site."""

from tasks_app.admin import audit, credentials, dead_letters, pages, plans, queues, tasks

__all__ = ["audit", "credentials", "dead_letters", "pages", "plans", "queues", "tasks"]  # imported: that registers them
