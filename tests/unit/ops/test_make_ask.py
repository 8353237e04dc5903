"""`make ask` hands the question on as it was typed."""

import subprocess

from app.config.local import ROOT


def test_nothing_in_a_question_is_run_or_lost(tmp_path):
    runs = f"`touch {tmp_path}/a` $(touch {tmp_path}/b) $(shell touch {tmp_path}/c)"
    question = f"""Does it cost $5 or "ten"? it's {runs} $HOME"""
    command = ["make", "--silent", "--old-file=.venv/.run", "ask", "PYTHON=echo", f"Q={question}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.rstrip("\n").endswith(f"-- {question}")
    assert list(tmp_path.iterdir()) == []
