"""Settings that are refused leave the accepted ones in force, at a replica's start as well."""

import asyncio
import json
import logging

import pytest

from app.config.guardrail import GuardrailConfig
from app.deployments.live_settings import LiveSettings, lasting
from app.errors import ConfigError, PayloadTooLarge
from app.messages import JudgeRequest
from app.metrics import MemoryMetrics
from app.stages.guardrail import Guardrail

GOOD, BETTER, BAD = {"terms": ["bomb"]}, {"terms": ["bomb", "mine"]}, {"terms": "("}


class Memory:
    """What outlives a replica. ``away``: it does not answer."""

    def __init__(self, away=False):
        self.text, self.away = "null", away

    def read(self):
        if self.away:
            raise ConnectionError
        return json.loads(self.text)

    def write(self, record):
        if self.away:
            raise ConnectionError
        self.text = json.dumps(record)


class Replica:
    """One replica of a deployment; ``fits`` are the settings that it can take."""

    def __init__(self, kept, fits=(GOOD, BETTER)):
        self.metrics, self.settings = MemoryMetrics(), None
        self._fits = fits
        self._live = LiveSettings("gateway", self._take, self.metrics, kept=kept)

    async def _take(self, settings):
        if settings not in self._fits:
            raise ConfigError(f"refused: {settings}")
        self.settings = settings

    def given(self, settings):
        return asyncio.run(self._live.reconfigure(settings))

    @property
    def refusals(self):
        return self.metrics.total("baton_config_refused_total", deployment="gateway")

    @property
    def version(self):
        return self.metrics.total("baton_config_version", deployment="gateway")


def test_a_replica_that_starts_with_refused_settings_takes_the_last_accepted_ones(caplog):
    kept = Memory()
    first = Replica(kept)
    first.given(GOOD)
    first.given(BETTER)
    first.given(BAD)
    assert (first.settings, first.refusals) == (BETTER, 1)
    later = Replica(kept)
    with caplog.at_level(logging.ERROR, "ray.serve.baton"):
        later.given(BAD)
    assert (later.settings, later.refusals, later.version) == (BETTER, 1, first.version)
    assert "the old ones stay in force" in caplog.text
    later.given(GOOD)
    assert (later.settings, later.refusals) == (GOOD, 1)
    last = Replica(kept)
    assert last.given(BAD)
    assert last.settings == GOOD


def test_at_the_first_deploy_a_refusal_stops_the_replica():
    with pytest.raises(ConfigError, match="refused"):
        Replica(Memory()).given(BAD)


def test_accepted_settings_that_no_longer_fit_leave_the_first_refusal():
    kept = Memory()
    Replica(kept).given(GOOD)
    replica = Replica(kept, fits=(BETTER,))
    with pytest.raises(ConfigError) as refused:
        replica.given(BAD)
    assert refused.value.message == f"refused: {BAD}"
    assert replica.settings is None
    assert replica.given(BETTER)


@pytest.mark.parametrize("record", [GOOD, [], 7, {"settings": GOOD}, {"settings": GOOD, "version": "new"}])
def test_a_record_of_another_kind_counts_as_none(record):
    kept = Memory()
    kept.write(record)
    with pytest.raises(ConfigError, match="refused"):
        Replica(kept).given(BAD)


def test_a_store_that_is_away_changes_nothing_about_the_settings():
    replica = Replica(Memory(away=True))
    assert replica.given(GOOD)
    assert not replica.given(BAD)
    assert (replica.settings, replica.refusals) == (GOOD, 1)
    with pytest.raises(ConfigError):
        Replica(Memory(away=True)).given(BAD)


def test_the_terms_of_a_file_that_was_spoilt_since_are_in_force_in_a_later_replica(tmp_path):
    def replica(kept):
        async def take(settings):
            guardrail.configure(GuardrailConfig.parse(settings, "guardrail"))

        guardrail, metrics = Guardrail(GuardrailConfig()), MemoryMetrics()
        asyncio.run(LiveSettings("guardrail", take, metrics, lasting, kept).reconfigure(settings))
        versions.append(metrics.total("baton_config_version"))
        return guardrail

    versions = []

    plain, lines = tmp_path / "terms.txt", tmp_path / "terms.jsonl"
    plain.write_text("bomb\n")
    lines.write_text('{"term": "mine", "action": "redact", "wholeWord": false}\n')
    files = [str(plain), {"path": str(lines), "category": "weapons", "directions": ["input"]}]
    settings = {"policies": {"default": {"terms": [{"term": "gun"}], "termsFiles": files}}, "maxTextChars": 5000}
    kept = Memory()
    requests = [JudgeRequest("input", ("a gun",), "default"), JudgeRequest("input", ("a bomb",), "default")]
    requests += [JudgeRequest(direction, ("undermined",), "default") for direction in ("input", "passage")]
    before = [summary(replica(kept).run(request)) for request in requests]
    assert [action for action, *_ in before] == ["block", "block", "redact", "allow"]
    plain.write_bytes(b"\xff\xfe")
    lines.unlink()
    later = replica(kept)
    assert len(set(versions)) == 1
    assert [summary(later.run(request)) for request in requests] == before
    with pytest.raises(PayloadTooLarge):
        later.run(JudgeRequest("input", ("x" * 5001,), "default"))


def summary(verdict):
    return verdict.action, verdict.texts, [(found.category, found.start, found.end) for found in verdict.findings]
