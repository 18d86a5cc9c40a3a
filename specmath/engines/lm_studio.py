"""LM Studio: the statistics of a prediction, in the spelling of its SDKs or of its REST interface.

Of the draft tokens made, the ignored ones never went to the target: verified are the accepted and rejected.
Its own example divides the accepted tokens by the predicted ones, which is no acceptance rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specmath.engines.content import Format
from specmath.engines.spec_counts import count, mean, require_possible, total
from specmath.engines.telemetry import Load, Telemetry
from specmath.engines.values import mapping, objects, positive, text
from specmath.results import Advice

ENGINE: Final = "lm-studio"


def read_predictions(document: Any, source: str) -> list[Telemetry]:
    """Telemetry of predictions: a result, its statistics alone, or many of them."""
    found = [(entry, _statistics(entry)) for entry in objects(document)]
    told = [(entry, stats) for entry, stats in found if stats]
    if not told:
        return []
    drafting = [stats for _, stats in told if _verified(stats) is not None]
    drafted = total(_verified(stats) for stats in drafting)
    accepted = total(count(stats.get("accepteddrafttokenscount")) for stats in drafting)
    predicted = total(_predicted(entry, stats) for entry, stats in told)
    models = {
        text(entry.get("model")) or text(mapping(entry.get("modelInfo")).get("modelKey")) for entry, _ in told
    }
    return [
        require_possible(
            Telemetry(
                engine=ENGINE,
                model=models.pop() if len(models) == 1 else None,
                source=source,
                scope="requests",
                drafted=drafted or 0.0,
                drafts=None if drafted else 0.0,
                accepted=accepted or 0.0,
                generated=predicted,
                steps=predicted - (accepted or 0) if predicted and predicted > (accepted or 0) else None,
                load=Load(time_per_token_s=_time_per_token(told)),
                notes=(_note(drafted),),
            )
        )
    ]


def _statistics(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Statistics with their keys in one spelling; empty where they are not LM Studio's."""
    stats = {
        key.replace("_", "").lower(): value for key, value in mapping(entry.get("stats") or entry).items()
    }
    own = ("totaldrafttokenscount", "numgpulayers", "timetofirsttokensec", "useddraftmodelkey")
    return stats if any(key in stats for key in own) else {}


def _verified(stats: Mapping[str, Any]) -> float | None:
    """Draft tokens that the target saw; None where no draft model was used."""
    made, accepted = count(stats.get("totaldrafttokenscount")), count(stats.get("accepteddrafttokenscount"))
    rejected, ignored = (
        count(stats.get("rejecteddrafttokenscount")),
        count(stats.get("ignoreddrafttokenscount")),
    )
    if accepted is None:
        return None
    if rejected is not None:
        return accepted + rejected
    return None if made is None else max(made - (ignored or 0.0), 0.0)


def _predicted(entry: Mapping[str, Any], stats: Mapping[str, Any]) -> float | None:
    told = count(stats.get("predictedtokenscount"))
    return told if told is not None else count(mapping(entry.get("usage")).get("completion_tokens"))


def _time_per_token(told: list[tuple[Mapping[str, Any], dict[str, Any]]]) -> float | None:
    """Seconds per token over all predictions, from each one's tokens and rate."""
    tokens, seconds = 0.0, 0.0
    for entry, stats in told:
        predicted, rate = _predicted(entry, stats), positive(stats.get("tokenspersecond"))
        if predicted and rate:
            tokens, seconds = tokens + predicted, seconds + predicted / rate
    return mean(seconds or None, tokens)


def _note(drafted: float | None) -> Advice:
    if not drafted:
        return Advice(
            code="no-data",
            text="no prediction counts a draft token: no draft model was used",
            remedy="give draftModel with the call",
        )
    return Advice(
        code="drafts-unknown",
        text="LM Studio counts no drafts: known are tokens per pass of the target, plain passes included",
        remedy="give --k where every draft is full (speculativeDecodingNumDraftTokensExact)",
    )


FORMATS: Final = (Format(engine=ENGINE, name="LM Studio predictions", read_document=read_predictions),)
