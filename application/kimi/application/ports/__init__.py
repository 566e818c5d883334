"""The ports: everything that the application needs from outside, as protocols and plain callables.

Each contract states order, cancellation, errors and idempotence. Every adapter passes the suite of its port in
`tests/contracts`. "Cancelled" means that an anyio cancel scope around the call was cancelled. A synchronous method does
not wait and cannot be cancelled.

The modules of this package group the ports by meaning; import from the package.
"""

from kimi.application.ports.functions import (
    LoadSkills,
    LoadSystemPrompt,
    NewId,
    Now,
    ObserveEvent,
    Random,
    ReadSkill,
    RunHook,
    ThirdPartyTool,
)
from kimi.application.ports.model_and_tools import (
    CallRejected,
    ChatModel,
    CheckArguments,
    CheckSchema,
    Elicitation,
    ElicitationAnswer,
    MakeTool,
    ModelItem,
    OpenModel,
    PreparedCall,
    ResponseEnd,
    ServerState,
    SourceAnswerRefused,
    SourceCallFailed,
    SourceDisconnected,
    SourceServer,
    SourceTimedOut,
    SourceTool,
    SourceUnavailable,
    Tool,
    ToolCallContext,
    ToolSource,
)
from kimi.application.ports.sessions import SessionCatalog, SessionFiles, SessionStore, SubagentFiles
from kimi.application.ports.workspace import BackgroundTasks, FileChanged, FileStat, Process, Shell, Workspace

__all__ = [
    "BackgroundTasks",
    "CallRejected",
    "ChatModel",
    "CheckArguments",
    "CheckSchema",
    "Elicitation",
    "ElicitationAnswer",
    "FileChanged",
    "FileStat",
    "LoadSkills",
    "LoadSystemPrompt",
    "MakeTool",
    "ModelItem",
    "NewId",
    "Now",
    "ObserveEvent",
    "OpenModel",
    "PreparedCall",
    "Process",
    "Random",
    "ReadSkill",
    "ResponseEnd",
    "RunHook",
    "ServerState",
    "SessionCatalog",
    "SessionFiles",
    "SessionStore",
    "Shell",
    "SourceAnswerRefused",
    "SourceCallFailed",
    "SourceDisconnected",
    "SourceServer",
    "SourceTimedOut",
    "SourceTool",
    "SourceUnavailable",
    "SubagentFiles",
    "ThirdPartyTool",
    "Tool",
    "ToolCallContext",
    "ToolSource",
    "Workspace",
]
