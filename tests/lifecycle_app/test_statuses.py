"""Display statuses: one mapping from code to Chinese and English text."""

from pathlib import Path

import pytest

from lifecycle_app.statuses import SHOWN, TEXTS, DisplayStatus, NodeStatus, status_text

SEED = {
    "SUBMITTING": "提交中",
    "SUBMITTED": "已提交",
    "DOWNLOADING": "下载中",
    "WAITING_COMPRESSION": "等待压缩",
    "COMPRESSING": "压缩中",
    "COMPLETE": "下载完成",
    "SUBMIT_UNKNOWN": "提交未知",
    "DELETE_PENDING": "待删除",
    "DELETE_FAILED": "删除失败",
}


def test_codes_and_chinese_texts_are_those_of_the_seed():
    assert {status.value: text.zh for status, text in TEXTS.items()} == SEED


@pytest.mark.parametrize("status", DisplayStatus)
def test_every_status_has_both_texts(status):
    text = status_text(status)
    assert set(text) == {"zh", "en"}
    assert text["zh"] and text["en"] and text["en"].isascii()


@pytest.mark.parametrize(
    ("code", "shown"),
    [(1, "DOWNLOADING"), (2, "WAITING_COMPRESSION"), (3, "COMPRESSING"), (4, "COMPLETE")],
)
def test_node_codes_are_the_old_ones(code, shown):
    assert SHOWN[NodeStatus(code)] == shown


def test_the_texts_stand_in_one_place_only():
    """状态码到中文文案只在一处映射."""
    package = Path(__file__).parents[2] / "lifecycle_app"
    holders = {
        path.name
        for path in package.rglob("*.py")
        if any(text in path.read_text(encoding="utf-8") for text in SEED.values())
    }
    assert holders == {"statuses.py"}
