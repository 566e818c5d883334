"""Use-case migrate: say item by item what of a share directory of kimi-cli works here (runtime spec 1.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kimi.application.settings.settings import McpServer, ModelSettings, Settings, explain_missing_key

MigrationStatus: TypeAlias = Literal["works", "note", "action", "broken"]
"""`note`: works differently, or does nothing here. `action`: a word or a command of the user is needed. `broken`: the
program cannot start with it."""


@dataclass(frozen=True, slots=True)
class MigrationItem:
    """What became of one thing. `advice` says what the user can do about it."""

    name: str
    status: MigrationStatus
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class ConfigurationReview:
    """What is found in the configuration file of a share directory."""

    path: str
    """The file; empty when there is none."""
    problem: str = ""
    """Why the program cannot start with it and has to be corrected by hand; empty otherwise."""
    refused: tuple[str, ...] = ()
    """The entries that are not understood, each with the reason; `--apply` takes them out."""
    without_effect: tuple[str, ...] = ()
    """The keys that are understood or ignored, and do nothing here."""
    services: tuple[str, ...] = ()
    """The configured services, usable or not."""
    is_legacy: bool = False
    """Whether it is the `config.json` of older versions, which becomes `config.toml`."""


@dataclass(frozen=True, slots=True)
class ShareContents:
    """What is found in a share directory, and what belongs to it elsewhere.

    `settings` are None when they are broken. `agents` maps agent files to what is wrong with them, "" for nothing.
    `exposed` are files with secrets that other users can read. `variables` are set and mean nothing here. `unlisted`
    counts directories of sessions whose work directory is not known. `other_command` is another program that comes
    first under the name `kimi`.
    """

    path: str
    configuration: ConfigurationReview
    settings: Settings | None = None
    settings_problem: str = ""
    providers: Sequence[ModelSettings] = ()
    logged_in: frozenset[str] = frozenset()
    skills: Sequence[str] = ()
    agents: Mapping[str, str] = field(default_factory=dict[str, str])
    sessions: int = 0
    work_dirs: int = 0
    unlisted: int = 0
    plugins: Sequence[str] = ()
    logins: Sequence[str] = ()
    exposed: Sequence[str] = ()
    other_command: str = ""
    variables: Sequence[str] = ()


def list_changes(found: ShareContents) -> list[str]:
    """Return what `--apply` changes, one sentence each; empty for nothing."""
    review, changes = found.configuration, list[str]()
    if review.is_legacy and not review.problem:
        changes.append(f"{review.path} becomes config.toml and is kept as config.json.bak.")
    if not review.problem:
        changes += [f"{review.path}: {entry} is taken out." for entry in review.refused]
    changes += [f"{path} becomes readable for you only." for path in found.exposed]
    return changes


def judge_share(found: ShareContents) -> list[MigrationItem]:
    """Return what works and what does not, item by item."""
    return [
        *_judge_configuration(found.configuration),
        *_judge_models(found),
        *_judge_services(found),
        *_judge_mcp(found),
        *_judge_hooks(found),
        *_judge_texts(found),
        *_judge_sessions(found),
        *_judge_plugins(found.plugins),
        *_judge_surroundings(found),
    ]


def _judge_configuration(review: ConfigurationReview) -> Iterator[MigrationItem]:
    name = "configuration"
    if review.problem:
        yield MigrationItem(name, "broken", review.problem, "Correct it by hand.")
    elif not review.path:
        yield MigrationItem(name, "action", "There is no configuration file yet.", "Run 'kimi setup'.")
    elif review.is_legacy:
        yield MigrationItem(name, "works", f"{review.path} is read, and becomes config.toml at the first start.")
    elif not review.refused:
        yield MigrationItem(name, "works", f"{review.path} is read as it is.")
    for entry in review.refused:
        advice = "Run 'kimi migrate --apply' to take it out, or correct it."
        yield MigrationItem(name, "broken", f"{entry} is not understood.", advice)
    if review.without_effect:
        yield MigrationItem("keys", "note", f"These do nothing here: {', '.join(review.without_effect)}.")


def _judge_models(found: ShareContents) -> Iterator[MigrationItem]:
    model = found.settings.model if found.settings is not None else None
    for provider in found.providers:
        name = f"provider {provider.provider_name}"
        if provider.lacks_key:
            yield MigrationItem(name, "action", explain_missing_key(provider))
        elif provider.oauth:
            message = "Its account login is not used: the API key is."
            yield MigrationItem(name, "works", message)
        else:
            yield MigrationItem(name, "works", f"Of type {provider.type}, as before.")
    if found.settings is None:
        return
    if model is None or not model.is_configured:
        yield MigrationItem("model", "action", "No default model is configured.", "Run 'kimi setup'.")
    elif model.is_usable:
        yield MigrationItem("model", "works", f"'{model.alias or model.model}' is used by default.")


def _judge_services(found: ShareContents) -> Iterator[MigrationItem]:
    if found.settings is None:
        return
    web = found.settings.web
    for name, service, without in (
        ("search", web.search, "The model has no web search: it needs a service with a key."),
        ("fetch", web.fetch, "Web pages are fetched from here, without a service."),
    ):
        if service is not None:
            yield MigrationItem(name, "works", "The service is used.")
        elif f"moonshot_{name}" in found.configuration.services:
            message = "The service has no key of its own, and no provider at its address has one."
            yield MigrationItem(name, "action", message, "It takes the key that 'kimi setup' asks for.")
        else:
            yield MigrationItem(name, "note", without, "'kimi setup' for the coding plan brings the services.")


def _judge_mcp(found: ShareContents) -> Iterator[MigrationItem]:
    if found.settings_problem:
        yield MigrationItem("mcp", "broken", found.settings_problem, "Correct it by hand.")
    for server in found.settings.mcp.servers if found.settings is not None else ():
        yield _judge_server(server, server.name in found.logged_in)


def _judge_server(server: McpServer, is_logged_in: bool) -> MigrationItem:
    name = f"mcp {server.name}"
    if server.config_error is not None:
        return MigrationItem(name, "action", server.config_error, "Correct its entry in mcp.json.")
    if server.auth == "oauth" and not is_logged_in:
        return MigrationItem(name, "action", "It wants a login.", f"Run: kimi mcp auth {server.name}")
    return MigrationItem(name, "works", "With its login." if server.auth == "oauth" else f"Over {server.transport}.")


def _judge_hooks(found: ShareContents) -> Iterator[MigrationItem]:
    hooks = found.settings.hooks if found.settings is not None else ()
    if hooks:
        events = ", ".join(dict.fromkeys(hook.event for hook in hooks))
        yield MigrationItem("hooks", "works", f"{_count(len(hooks), 'hook')}: {events}.")


def _judge_texts(found: ShareContents) -> Iterator[MigrationItem]:
    if found.skills:
        yield MigrationItem("skills", "works", f"{_count(len(found.skills), 'skill')}: {', '.join(found.skills)}.")
    for path, problem in found.agents.items():
        if problem:
            yield MigrationItem(f"agent {path}", "action", problem, "Correct the file; see docs/agents.md.")
        else:
            yield MigrationItem(f"agent {path}", "works", f"Run: kimi --agent-file {path}")


def _judge_sessions(found: ShareContents) -> Iterator[MigrationItem]:
    if found.sessions:
        where = _count(found.work_dirs, "work directory", "work directories")
        message = f"{_count(found.sessions, 'session')} of {where} can be resumed."
        yield MigrationItem("sessions", "works", message, "Not in both programs at once.")
    if found.unlisted:
        message = f"{_count(found.unlisted, 'directory', 'directories')} of sessions: kimi.json does not say of what."
        yield MigrationItem("sessions", "note", message, "Resume one by its id, in its work directory.")


def _judge_plugins(plugins: Sequence[str]) -> Iterator[MigrationItem]:
    for name in plugins:
        yield MigrationItem(f"plugin {name}", "action", "Installed.", "'kimi plugin list' says what of it runs here.")


def _judge_surroundings(found: ShareContents) -> Iterator[MigrationItem]:
    for path in found.logins:
        message = f"{path} is an account login of kimi-cli: it is left alone and not used."
        yield MigrationItem("login", "note", message, "'kimi logout' removes it.")
    for path in found.exposed:
        yield MigrationItem("access", "action", f"Other users can read {path}.", "Run 'kimi migrate --apply'.")
    if found.variables:
        yield MigrationItem("variables", "note", f"These do nothing here: {', '.join(found.variables)}.")
    if found.other_command:
        message = f"The command 'kimi' is another program: {found.other_command}."
        yield MigrationItem("command", "action", message, "See 'Beside or instead' in docs/migration.md.")


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or f'{one}s'}"
