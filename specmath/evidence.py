"""Kinds of set-ups, and how much has been measured in public of each: what a forecast asks.

Where fewer than `MIN_SETUPS` set-ups or `MIN_SOURCES` sources have been measured, the error of a forecast is
not known, and it says so. The counts are kept as a table so that a forecast need not read the measurements; a
test counts them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specmath.results import Advice

BLOCK_METHODS: Final = ("dflash", "dspark", "domino", "pard", "p-eagle")
"""Drafters that give a block of tokens in one pass."""
MIN_SETUPS: Final = 3
MIN_SOURCES: Final = 2
"""Rows of one source share its machine and its way of measuring, so a second one is asked for."""
UNSTATED: Final = "not stated"
LONG_CONTEXT: Final = 4096
MEDIUM_BATCH: Final = 16


def batch_stratum(batch: int) -> str:
    """Where a batch belongs.

    >>> [batch_stratum(batch) for batch in (1, 16, 17)]
    ['1', '2–16', 'above 16']
    """
    return "1" if batch == 1 else f"2–{MEDIUM_BATCH}" if batch <= MEDIUM_BATCH else f"above {MEDIUM_BATCH}"


def context_stratum(context: float | None) -> str:
    """Where a context belongs.

    >>> [context_stratum(context) for context in (500, 4096, None)]
    ['below 4k', '4k and above', 'not stated']
    """
    if context is None:
        return UNSTATED
    return "below 4k" if context < LONG_CONTEXT else "4k and above"


def device_stratum(devices: int | None) -> str:
    """One device or several.

    >>> [device_stratum(devices) for devices in (1, 8)]
    ['one device', 'several devices']
    """
    return "one device" if (devices or 1) == 1 else "several devices"


def method_stratum(method: str | None) -> str:
    """A way of drafting, or its family where the family is measured too little to be divided.

    >>> [method_stratum(method) for method in ("eagle3", "dflash", "suffix")]
    ['eagle3', 'block drafter', 'ngram']
    """
    return (
        "block drafter" if method in BLOCK_METHODS else "ngram" if method == "suffix" else method or UNSTATED
    )


BATCHES: Final = ("1", "2–16", "above 16")
"""Strata of the batch, in order."""
MEASURED: Final[dict[tuple[str, str], tuple[tuple[int, int], ...]]] = {
    ("block drafter", "one device"): ((4, 1), (0, 0), (0, 0)),
    ("draft-model", "one device"): ((10, 5), (0, 0), (0, 0)),
    ("draft-model", "several devices"): ((1, 1), (0, 0), (0, 0)),
    ("eagle", "one device"): ((11, 8), (2, 2), (2, 2)),
    ("eagle", "several devices"): ((2, 1), (0, 0), (0, 0)),
    ("eagle3", "one device"): ((5, 5), (1, 1), (1, 1)),
    ("eagle3", "several devices"): ((8, 4), (7, 3), (5, 2)),
    ("lookup-tree", "one device"): ((4, 1), (0, 0), (0, 0)),
    ("lookup-tree", "several devices"): ((1, 1), (0, 0), (0, 0)),
    ("medusa", "one device"): ((8, 1), (0, 0), (0, 0)),
    ("medusa", "several devices"): ((2, 1), (0, 0), (0, 0)),
    ("mtp", "one device"): ((11, 8), (0, 0), (0, 0)),
    ("mtp", "several devices"): ((10, 6), (6, 3), (6, 2)),
    ("ngram", "one device"): ((6, 3), (1, 1), (1, 1)),
    ("ngram", "several devices"): ((2, 2), (1, 1), (1, 1)),
}
"""Set-ups and sources by method and devices, one pair per stratum of the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEvidence:
    """How much has been measured of one kind.

    Attributes:
        stratum: The kind in words.
        rows: Usable rows.
        setups: Set-ups among them.
        sources: Sources they come from.
    """

    stratum: str
    rows: int
    setups: int
    sources: int

    @property
    def is_thin(self) -> bool:
        """Whether the error of a forecast of this kind is not known."""
        return self.setups < MIN_SETUPS or self.sources < MIN_SOURCES

    @property
    def advice(self) -> Advice | None:
        """What a forecast must say; None where there is evidence enough."""
        if not self.is_thin:
            return None
        plural = ("set-up" if self.setups == 1 else "set-ups", "source" if self.sources == 1 else "sources")
        told = f"{self.setups} {plural[0]} of {self.sources} {plural[1]}" if self.rows else "nothing"
        return Advice(
            code="thin-evidence",
            text=f"{told} measured in public for {self.stratum}: the error of this forecast is not known",
            remedy="give one measured pair as --measured",
            until_measured=True,
        )


def measured_evidence(method: str, devices: int, batch: int) -> MeasuredEvidence:
    """How much has been measured in public of a way of drafting, at a batch, on so many devices.

    >>> measured_evidence("mtp", 8, 1).is_thin, measured_evidence("dflash", 1, 64).is_thin
    (False, True)
    """
    kind, place = (method_stratum(method), device_stratum(devices)), BATCHES.index(batch_stratum(batch))
    setups, sources = MEASURED.get(kind, ((0, 0),) * len(BATCHES))[place]
    words = f"{kind[0]} on {kind[1]} at batch {BATCHES[place]}"
    return MeasuredEvidence(stratum=words, rows=setups, setups=setups, sources=sources)
