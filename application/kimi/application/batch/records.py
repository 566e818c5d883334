"""Orders, outcomes and results of a batch as JSON: between processes, in the journal, in the results."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from kimi.application.batch.ports import AttemptOrder
from kimi.domain.batch import AttemptOutcome, BatchResult, BatchWorktree
from kimi.domain.turn import UsageTotal

ORDERS = TypeAdapter(AttemptOrder)
OUTCOMES = TypeAdapter(AttemptOutcome)
WORKTREES = TypeAdapter(BatchWorktree)
USAGES = TypeAdapter(UsageTotal)


def shape_result(result: BatchResult) -> dict[str, Any]:
    """Return the object of a result line (runtime spec 10.2)."""
    return asdict(result) | {"usage": shape_usage(result.usage)}


def shape_usage(usage: UsageTotal) -> dict[str, Any]:
    """Return what was used, as print mode writes it."""
    return {**asdict(usage.tokens), "cost": usage.cost and asdict(usage.cost)}
