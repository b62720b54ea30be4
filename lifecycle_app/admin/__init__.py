"""The operators' pages of the lifecycle: rows to look at, and the one place where an intent is reconciled."""

from lifecycle_app.admin import intents, pages

__all__ = ["intents", "pages"]
