"""Guardrails for tests: the built-in rules alone, and with a few terms."""

from app.config.guardrail import GuardrailConfig
from app.messages import JudgeRequest
from app.stages.guardrail import Guardrail

TERMS = ["bomb", "炸弹", "身份证号", "ass", "launch code"]


def build(**default):
    # The budget is CPU time, of which a busy machine needs several times as much for the same.
    whole = {"policies": {"default": default}, "patternBudgetMilliseconds": 5000}
    stage = Guardrail(GuardrailConfig.parse(whole, "guardrail"))
    stage.start()
    return stage


BUILT_IN = build()
LISTED = build(terms=[{"terms": TERMS, "category": "weapons"}])


def action(stage, text, direction="input"):
    return stage.run(JudgeRequest(direction, (text,))).action
