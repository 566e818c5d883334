"""What the author of a session store needs beside the ports: records, state, errors, and how contexts are repaired.

The promises of a store are in `kimi.application.ports` (`SessionStore`, `SessionFiles`, `SubagentFiles`); the suites in
`tests/contracts` check them. `examples/sql_sessions.py` is a store over two databases.
"""

from __future__ import annotations

from kimi.application.codec.context_line import decode_record, encode_record
from kimi.application.ports import SessionFiles, SessionStore, SubagentFiles
from kimi.domain.agents.subagent import SubagentRecord
from kimi.domain.content.message import Message
from kimi.domain.errors import InvalidSessionId, SessionBusy, StoreFailed
from kimi.domain.history.session import ContextRecord, SessionState, SessionSummary, check_session_id
from kimi.interfaces.bootstrap.store import find_session_title, repair_context

__all__ = [
    "ContextRecord",
    "InvalidSessionId",
    "Message",
    "SessionBusy",
    "SessionFiles",
    "SessionState",
    "SessionStore",
    "SessionSummary",
    "StoreFailed",
    "SubagentFiles",
    "SubagentRecord",
    "check_session_id",
    "decode_record",
    "encode_record",
    "find_session_title",
    "repair_context",
]
