"""The verbs of the lifecycle: create, delete, apply a report, deliver, recover, reconcile.

Rows are locked in one order: intents (by gid) -> rows of those intents -> weekly usage -> storage nodes. Every verb
that changes an intent locks it first, so all that happens to one gid happens one after the other.
"""
