"""Files with a bearer token: made for their owner alone, never over another file, never printed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from tasks_app.domain.tenancy import IssuedCredential
from tasks_app.states import Policy

FILE_MODE = 0o600


def write_credential_file(path: Path, issue: Callable[[], Mapping[str, Any]], *, undo: Callable[[str], object]) -> None:
    """Makes `path` (mode 0600, refusing one that exists), issues the credential, and writes what `issue` returned.

    In that order a path that cannot be written costs no credential. When the last step fails, `undo(credential_id)`
    takes back the credential whose token nobody will ever see. Raises CommandError for what the file system refuses.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        raise CommandError(f"{path} exists; it is not overwritten") from None
    except OSError as error:
        raise CommandError(f"{path} cannot be made: {error.strerror}") from None
    try:
        os.fchmod(descriptor, FILE_MODE)  # whatever the umask
        members = issue()
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(members, file, ensure_ascii=False, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(descriptor)
        except OSError as error:
            undo(members["credential_id"])
            raise CommandError(f"{path} cannot be written: {error.strerror}; the credential was revoked") from None
    except BaseException:
        path.unlink()
        raise


def members_of(
    *, application_id: str, namespace_id: str, policy: Policy, queues: Mapping[str, str], issued: IssuedCredential
) -> dict[str, Any]:
    """What stands in the file; the SDK reads it. `queues` maps the names in the credential's scope to ids."""
    return {
        **_own_url(),
        "application_id": application_id,
        "namespace_id": namespace_id,
        "policy": policy.value,
        "queues": dict(queues),
        "credential_id": issued.credential_id,
        "token": issued.token,
        "actions": list(issued.actions),
    }


def _own_url() -> dict[str, str]:
    """`{"url": …}` where the settings say it: of a node on loopback. What a balancer is called is not known here."""
    address = settings.ORBIT.http_addr
    return {"url": f"http://{address}"} if address.is_loopback and address.port else {}
