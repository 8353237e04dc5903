"""Guardrails for tests: the built-in rules alone, and with a few terms."""

from app.config.guardrail import GuardrailConfig
from app.messages import JudgeRequest
from app.stages.guardrail import Guardrail

TERMS = ["bomb", "炸弹", "身份证号", "ass", "launch code"]


def build(**default):
    stage = Guardrail(GuardrailConfig.parse({"policies": {"default": default}}, "guardrail"))
    stage.start()
    return stage


BUILT_IN = build()
LISTED = build(terms=[{"terms": TERMS, "category": "weapons"}])


def action(stage, text, direction="input"):
    return stage.run(JudgeRequest(direction, (text,))).action
