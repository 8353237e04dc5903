"""The postprocessor: what can be said about an answer once it is whole.

Per choice: is it the JSON that was asked for, which passage does each sentence rest on, how well do the passages carry
the answer, how sure may one be of it. The answer's text is never changed, so streamed and plain replies are alike.
"""

from __future__ import annotations

from app.answers.confidence import Calibration
from app.answers.json_answer import JsonChecker, JsonReport
from app.answers.review import Review, Scale
from app.config.answers import PostprocessorConfig
from app.config.embedder import EmbedderConfig
from app.embedders.factory import build_embedder
from app.errors import ConfigError, StageUnavailable
from app.logs import logger
from app.messages import Choice, ChoiceReport, PostprocessRequest, Report, Retrieved

_log = logger("postprocessor")
_USABLE_JSON = frozenset({"valid", "repaired"})


class Postprocessor:
    """Checks, grounds and ranks answers. ``run`` is thread-safe and deterministic."""

    name = "postprocessor"

    def __init__(self, embedder: EmbedderConfig, settings: PostprocessorConfig) -> None:
        self._embedder = build_embedder(embedder)
        self._settings = settings
        self._json = JsonChecker()
        self._scale: Scale | None = None

    def start(self) -> None:
        """Load the embedder and the calibration. Raises :class:`ConfigError` naming the path."""
        calibration = Calibration.load()
        self._embedder.start()
        if calibration.embedder != self._embedder.name:
            _log.warning(
                "confidence was calibrated for embedder %s and %s is served; run scripts/calibrate.py",
                calibration.embedder,
                self._embedder.name,
            )
        self._scale = Scale.build(calibration, self._embedder)

    def configure(self, settings: PostprocessorConfig) -> None:
        """Take new settings; requests that are under way keep the old ones."""
        if not isinstance(settings, PostprocessorConfig):
            found = type(settings).__name__
            raise ConfigError(f"the postprocessor takes a PostprocessorConfig, not {found}", self.name)
        self._settings = settings

    def run(self, request: PostprocessRequest, payload: Retrieved | None = None) -> Report:
        """Return one report per choice that is kept, best first where there are more choices than ``keep``.

        Raises :class:`EmbeddingMismatch` when the passages were embedded with another dimension than the embedder's.
        """
        if self._scale is None:
            raise StageUnavailable("the postprocessor is not started", self.name)
        review = Review(request, payload, self._settings, self._scale)
        json_reports = [self._check_json(choice, request) for choice in request.choices]
        grounded = review.ground(json_reports, self._embedder)
        reports = [
            review.report(choice, json_report, found)
            for choice, json_report, found in zip(request.choices, json_reports, grounded, strict=True)
        ]
        blocked = {choice.index for choice in request.choices if choice.finish_reason == "content_filter"}
        return Report(choices=tuple(_best(reports, request.keep, blocked)))

    def close(self) -> None:
        """Release the embedder."""
        self._scale = None
        self._embedder.close()

    def _check_json(self, choice: Choice, request: PostprocessRequest) -> JsonReport | None:
        if request.response_format is None or (choice.has_tool_calls and not choice.text.strip()):
            return None
        return self._json.check(choice.text, choice.finish_reason, request.response_format)


def _best(reports: list[ChoiceReport], keep: int, blocked: set[int]) -> list[ChoiceReport]:
    """Return the choices the caller gets; only a surplus is ranked.

    What the guardrail cut short comes last, then usable JSON counts before confidence before grounding.
    """
    if len(reports) <= keep:
        return reports
    return sorted(reports, key=lambda report: (report.index not in blocked, *_rank(report)), reverse=True)[:keep]


def _rank(report: ChoiceReport) -> tuple[bool, float, float]:
    usable = report.json is None or report.json["status"] in _USABLE_JSON
    return usable, -1 if report.confidence is None else report.confidence, report.grounding or 0
