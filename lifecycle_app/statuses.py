"""What a row shows: display statuses, and their Chinese and English texts in one mapping only (design 4.1)."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple


class DisplayStatus(StrEnum):
    SUBMITTING = "SUBMITTING"
    SUBMITTED = "SUBMITTED"
    DOWNLOADING = "DOWNLOADING"
    WAITING_COMPRESSION = "WAITING_COMPRESSION"
    COMPRESSING = "COMPRESSING"
    COMPLETE = "COMPLETE"
    SUBMIT_UNKNOWN = "SUBMIT_UNKNOWN"
    DELETE_PENDING = "DELETE_PENDING"
    DELETE_FAILED = "DELETE_FAILED"


class StatusText(NamedTuple):
    zh: str
    en: str


D = DisplayStatus

TEXTS: Final[dict[DisplayStatus, StatusText]] = {
    D.SUBMITTING: StatusText("提交中", "Submitting"),
    D.SUBMITTED: StatusText("已提交", "Submitted"),
    D.DOWNLOADING: StatusText("下载中", "Downloading"),
    D.WAITING_COMPRESSION: StatusText("等待压缩", "Waiting for compression"),
    D.COMPRESSING: StatusText("压缩中", "Compressing"),
    D.COMPLETE: StatusText("下载完成", "Complete"),
    D.SUBMIT_UNKNOWN: StatusText("提交未知", "Submission unknown"),
    D.DELETE_PENDING: StatusText("待删除", "Waiting for deletion"),
    D.DELETE_FAILED: StatusText("删除失败", "Deletion failed"),
}


class NodeStatus(IntEnum):
    """The codes storage nodes report; older than this protocol and never to be renumbered."""

    DOWNLOADING = 1
    WAITING_COMPRESSION = 2
    COMPRESSING = 3
    COMPLETE = 4


SHOWN: Final[dict[NodeStatus, DisplayStatus]] = {
    NodeStatus.DOWNLOADING: D.DOWNLOADING,
    NodeStatus.WAITING_COMPRESSION: D.WAITING_COMPRESSION,
    NodeStatus.COMPRESSING: D.COMPRESSING,
    NodeStatus.COMPLETE: D.COMPLETE,
}


def status_text(status: DisplayStatus) -> dict[str, str]:
    """The member `status_text` of an operation object."""
    return TEXTS[status]._asdict()
