"""Integrations with other libraries; each imports what it integrates."""
