"""`meta.json` of a subagent: its identity and status (runtime spec 4.1, 6.6). Shared with other programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from kimi.application.codec.envelope import encode_json
from kimi.domain.agents.subagent import SubagentRecord, SubagentStatus


def decode_meta(agent_id: str, source: Mapping[str, Any] | None) -> SubagentRecord | None:
    """Decode the record in a `meta.json`; None if there is none or the type of the subagent is missing."""
    kind = (source or {}).get("subagent_type")
    if source is None or not isinstance(kind, str):
        return None
    return SubagentRecord(
        agent_id=agent_id,
        type=kind,
        status=_decode_status(source.get("status")),
        description=_decode_text(source.get("description")) or "",
        model=_decode_text(_launch_spec(source).get("model_override")),
        created_at=_decode_number(source.get("created_at")),
        updated_at=_decode_number(source.get("updated_at")),
    )


def encode_meta(record: SubagentRecord, stored: Mapping[str, Any] | None) -> bytes:
    """Encode `record`; unknown members of the stored file are kept."""
    source = stored or {}
    ours = {
        "agent_id": record.agent_id,
        "subagent_type": record.type,
        "status": record.status,
        "description": record.description,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "launch_spec": {
            **_launch_spec(source),
            "agent_id": record.agent_id,
            "subagent_type": record.type,
            "model_override": record.model,
            "created_at": record.created_at,
        },
    }
    return encode_json({**source, **ours})


def _launch_spec(source: Mapping[str, Any]) -> dict[str, Any]:
    found = source.get("launch_spec")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _decode_status(value: object) -> SubagentStatus:
    return cast("SubagentStatus", value) if value in get_args(SubagentStatus) else "idle"


def _decode_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _decode_number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
