"""How `make` talks: the step before it is done, what came of it, and what to type when it failed."""

from __future__ import annotations

import io
import sys

import pytest

from tools.steps import StepFailed, Steps, explain


def old_terminal(monkeypatch):
    """From now on, a terminal that cannot show everything, as an old locale makes it; gives what it showed so far."""
    raw = io.BytesIO()
    stdout = io.TextIOWrapper(raw, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    return lambda: (stdout.flush(), raw.getvalue().decode())[1]


def test_a_step_is_named_before_it_is_done_and_told_after(monkeypatch):
    terminal = old_terminal(monkeypatch)
    steps = Steps("title", 2)

    with steps.step("first") as step:
        assert terminal().endswith(" 1/2 first         ")
        step.result = "one line\nand another"
        step.note = "a note"

    told = terminal().splitlines()
    assert told[0] == "title"
    assert told[1].startswith(" 1/2 first         one line ")
    assert told[1].endswith(" s   (a note)")
    assert told[2].strip() == "and another"


def test_what_a_terminal_cannot_show_does_not_end_the_program(monkeypatch):
    terminal = old_terminal(monkeypatch)
    with Steps("Orbit · ✓", 1).step("→") as step:
        step.result = "✓"

    assert "Orbit ? ?" in terminal()


def test_a_failed_step_names_cause_next_command_and_log(monkeypatch, capsys, tmp_path):
    terminal = old_terminal(monkeypatch)
    log = tmp_path / "log.txt"
    log.write_text("\n".join(f"line {number}" for number in range(100)))

    with pytest.raises(StepFailed) as failed, Steps("title", 1).step("database"):
        raise StepFailed("the disk is full", next_command="df -h", log=log)
    explain(failed.value)

    assert "FAILED" in terminal()
    said = capsys.readouterr().err
    assert "database failed: the disk is full" in said
    assert "next: df -h" in said
    assert str(log) in said
    assert "line 99" in said
    assert "line 10\n" not in said
