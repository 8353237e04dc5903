"""Everything that the README shows is run: its shell commands, its Python, and the names it promises."""

import json
import re
import subprocess
import sys

import pytest

from tests.app.baton import ROOT

README = (ROOT / "README.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def here(baton, text):
    return text.replace("http://127.0.0.1:8000", baton.base).replace("make ask", f'make ask ARGS="--url {baton.base}"')


@pytest.mark.parametrize("command", blocks("sh"))
def test_shell_commands_do_what_they_say(baton, command):
    done = subprocess.run(here(baton, command), shell=True, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert '"error"' not in done.stdout


def test_the_question_that_curl_asks_is_answered_rightly(baton):
    (command,) = [shown for shown in blocks("sh") if "/chat/completions" in shown]
    done = subprocess.run(here(baton, command), shell=True, cwd=ROOT, capture_output=True, text=True, timeout=180)
    reply = json.loads(done.stdout)
    assert "set of documents" in reply["choices"][0]["message"]["content"]
    assert reply["baton"]["citations"][0]["id"].startswith("collections-en")


@pytest.mark.parametrize("program", blocks("python"))
def test_python_examples_run(baton, program):
    command = [sys.executable, "-c", here(baton, program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    answer, unsupported, citations = done.stdout.strip().split("\n", 2)
    choice = json.loads(answer)
    assert (choice["product"], choice["price"]) == ("Tiffo stacking lunch box", 24.0)
    assert unsupported == "[]"
    assert "lunchbox-tiffo-en" in citations


def test_the_announcement_looks_as_shown(baton):
    (shown,) = blocks("text")
    for line in shown.splitlines():
        start = line.split("http")[0].split("]")[-1].strip()
        assert any(start in said for said in baton.output), line


def test_the_two_commands_are_there():
    assert [block.strip() for block in blocks("console")] == ["$ make run", "$ make test"]


def test_files_that_the_readme_names_exist():
    for name in re.findall(r"\]\(([\w./-]+)\)", README) + re.findall(r"`(config/[\w./]+)`", README):
        assert (ROOT / name).exists(), name
