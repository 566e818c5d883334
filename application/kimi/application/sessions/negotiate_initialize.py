"""Use-case negotiate-initialize: apply a client's capabilities and external tools (wire spec 3.1, 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kimi.application.commands.registry import list_agent_commands
from kimi.application.conversation.conversation import Conversation
from kimi.application.conversation.running_turn import BUSY
from kimi.application.ports import CheckArguments, CheckSchema
from kimi.domain.client import CLIENT_TOOLS, Client
from kimi.domain.command import CommandInfo
from kimi.domain.content.message import JsonObject
from kimi.domain.errors import StateError
from kimi.domain.tools.tool import ToolSpec

NO_DESCRIPTION = "No description provided."


@dataclass(frozen=True, slots=True)
class ExternalToolOffer:
    """A tool that the client offers to run."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class RejectedTool:
    """A tool that was refused, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class InitializeOutcome:
    """The result of the handshake. `accepted` and `rejected` are in the order of the offers, each name once."""

    commands: tuple[CommandInfo, ...]
    accepted: tuple[str, ...]
    rejected: tuple[RejectedTool, ...]


def negotiate_initialize(
    conversation: Conversation,
    client: Client,
    offers: Sequence[ExternalToolOffer],
    *,
    check_schema: CheckSchema,
    check_arguments: CheckArguments,
    external_timeout_s: float,
) -> InitializeOutcome:
    """Apply the client's tools and capabilities. May be repeated; a tool of the same name is replaced.

    Raises StateError while a turn runs; nothing has changed then.
    """
    if conversation.turn is not None:
        raise StateError(BUSY)
    set_client(conversation, client)
    accepted: dict[str, None] = {}
    rejected: dict[str, RejectedTool] = {}
    for offer in offers:
        reason = _find_schema_error(check_schema, offer.parameters)
        if reason is None:
            reason = _add_external_tool(conversation, offer, check_arguments, external_timeout_s)
        if reason is not None and offer.name in conversation.toolset.builtin_names:
            reason = "conflicts with builtin tool"
        if reason is None:
            accepted[offer.name] = None
        else:
            rejected[offer.name] = RejectedTool(offer.name, reason or "invalid schema")
    return InitializeOutcome(list_agent_commands(conversation), tuple(accepted), tuple(rejected.values()))


def _add_external_tool(
    conversation: Conversation, offer: ExternalToolOffer, check_arguments: CheckArguments, timeout_s: float
) -> str | None:
    """Add the tool; return the reason when it is refused, else None."""
    # start-up time: most clients offer none
    from kimi.application.toolset.external_tool import ExternalTool
    from kimi.application.toolset.foreign_schema import NO_OBJECT, normalise_parameters

    parameters = normalise_parameters(offer.parameters)
    if parameters is None:
        return NO_OBJECT
    spec = ToolSpec(offer.name, offer.description or NO_DESCRIPTION, parameters)
    return conversation.toolset.add_external(ExternalTool(spec, check_arguments, timeout_s))


def set_client(conversation: Conversation, client: Client) -> None:
    """Set the client, and hide the tools from the model that this client could not serve."""
    conversation.events.set_client(client)
    conversation.toolset.hide(hidden_tools(client))


def _find_schema_error(check_schema: CheckSchema, schema: JsonObject) -> str | None:
    try:
        return check_schema(schema)
    except RecursionError:
        return "invalid schema"


def hidden_tools(client: Client) -> frozenset[str]:
    """Return the names of the tools that are hidden from the model because this client could not serve them."""
    return frozenset(name for name, capability in CLIENT_TOOLS.items() if not getattr(client, capability))
