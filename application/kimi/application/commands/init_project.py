"""`/init`: let the agent analyse the code and write AGENTS.md, in a scratch context (runtime spec 7.2)."""

from __future__ import annotations

from random import random as uniform

import anyio.to_thread

from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.running_turn import IDLE
from kimi.application.step.checkpoints import next_checkpoint_records
from kimi.application.step.run_steps import run_steps
from kimi.domain.content.message import user_message
from kimi.domain.errors import StateError
from kimi.domain.tools.repeat_guard import RepeatGuard
from kimi.domain.tools.tool import escape_host_tags
from kimi.domain.turn import TurnStatus

INIT_PROMPT = """\
Get to know this project and write `AGENTS.md` in the working directory: what a coding agent that has never seen the \
project must know to work in it.

First look around: the layout, the build files, the configuration of tests, linters and CI, the existing \
documentation, and enough of the code to understand how the parts fit together. State only what you have seen.

The file says, as briefly as it can and with exact commands and paths:

- what the project is, and what it is built with;
- where things are, and how the main parts depend on each other;
- how to build, run, test, lint and format, including how to run a single test;
- conventions that the code follows and that are not obvious from a single file;
- what must be looked out for: generated files, security, deployment.

Write it in the language of the project's documentation. If there is an AGENTS.md already, keep what still holds and \
improve the rest. Change no other file."""

_WRITTEN_NOTICE = """\
<system>The person has run /init: the project was analysed and its AGENTS.md was written. It now says:

{text}
</system>"""
_MISSING_NOTICE = "<system>The person has run /init, but the project has no AGENTS.md: none was written.</system>"


async def init_project(conversation: Conversation, arguments: str) -> TurnStatus:
    """Let the agent write AGENTS.md in a scratch context, then append the text of the file to the history.

    Raises ModelNotSet, ChatProviderError, StoreFailed; the history is then unchanged.
    """
    project, model, turn = (
        conversation.resources.require_project(),
        conversation.models.require_model(),
        conversation.turn,
    )
    if turn is None:
        raise StateError(IDLE)
    turn.repeat_guard = RepeatGuard()
    with conversation.context.scratch_context():
        conversation.context.append(*next_checkpoint_records(conversation), user_message(INIT_PROMPT))
        status = await run_steps(conversation, turn, model, uniform)
    if status.status != "cancelled":
        text = await anyio.to_thread.run_sync(project.load_instructions)
        notice = _WRITTEN_NOTICE.format(text=escape_host_tags(text)) if text else _MISSING_NOTICE
        conversation.context.append(user_message(notice))
    return status
