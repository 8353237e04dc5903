"""The committed rules: promtool takes them, every alert fires in its case and only there, and each has a runbook."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import promql_parser
import pytest
import yaml

from dashboards.output import ROOT, RULES, files
from tests.dashboards import healthy_world, names
from tests.dashboards.alert_cases import CASES

RULE_LIST = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULE_LIST if "alert" in rule}
RECORDS = [(rule["record"], rule) for rule in RULE_LIST if "record" in rule]


PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.executable).parent))


def promtool(*arguments):
    """Run promtool; a machine without it fails here, with what to do, and skips nothing."""
    assert PROMTOOL, "there is no promtool: run scripts/install_promtool.sh"
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules():
    promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))


def test_every_alert_has_its_case():
    assert CASES.keys() == ALERTS.keys()


def _needed(name):
    """Return the alert's own rules: evaluating all of them for every case takes minutes."""
    alert = ALERTS[name]
    records = [
        rule
        for key, rule in RECORDS
        if f"{key}{{" in alert["expr"] and rule.get("labels", {}).get("slo", "") in alert["expr"]
    ]
    return {"groups": [{"name": "case", "rules": [*records, alert]}]}


def _file(folder, name, case, firing):
    seen = f'sum(ALERTS{{alertname="{name}",alertstate="firing"}}) > bool 0'
    samples = [{"labels": "{}", "value": 1}] if firing else []
    cases = (case.fires, *case.fires_too) if firing else (case.silent, *case.silent_too)
    tests = [
        {
            "interval": case.interval,
            "input_series": [{"series": found, "values": values} for found, values in series.items()],
            "promql_expr_test": [{"expr": seen, "eval_time": case.at, "exp_samples": samples}],
        }
        for series in cases
    ]
    rules, path = folder / f"{name}-rules.yaml", folder / f"{name}-{firing}.yaml"
    rules.write_text(yaml.safe_dump(_needed(name)))
    path.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": case.interval, "tests": tests}))
    return str(path)


def _in_a_healthy_world(folder):
    test = {
        "interval": "1m",
        "input_series": [{"series": found, "values": values} for found, values in healthy_world.series().items()],
        "promql_expr_test": [
            {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{minute}m", "exp_samples": []}
            for minute in healthy_world.LOOKED_AT
        ],
    }
    path = folder / "healthy.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    return str(path)


@pytest.mark.timeout(400)
def test_in_a_healthy_world_all_alerts_together_are_silent(tmp_path):
    promtool("test", "rules", _in_a_healthy_world(tmp_path))


def test_the_healthy_world_has_every_metric_that_a_rule_reads():
    read = {
        name
        for rule in RULE_LIST
        for found in names.selectors(promql_parser.parse(rule["expr"]))
        for name in (found.name or found.matchers.matchers[0].value).split("|")
    }
    shown = {found.partition("{")[0] for found in healthy_world.series()}
    assert {name for name in read if not name.startswith("baton")} <= shown


@pytest.mark.timeout(400)
@pytest.mark.parametrize("firing", [True, False])
def test_every_alert_fires_in_its_case_and_is_silent_in_the_other(tmp_path, firing):
    files = [_file(tmp_path, name, case, firing) for name, case in CASES.items()]
    with ThreadPoolExecutor() as pool:  # half of the files each, for promtool uses one core
        list(pool.map(lambda part: promtool("test", "rules", *part), (files[::2], files[1::2])))


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_says_what_it_means_and_where_to_read_on(name):
    alert = ALERTS[name]
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url", "dashboard_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    assert f"\n## {name}\n" in runbook


def test_the_committed_files_are_the_generated_ones():
    assert {path for path, text in files().items() if path.read_text() != text} == set()
