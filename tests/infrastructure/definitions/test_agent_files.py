"""Agent files: inheritance, mistakes, templates (runtime spec 6.1, 6.2)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from kimi.application.agents.builtin_agents import CODER, DEFAULT_TOOLS, EXPLORE, PLAN, build_builtin_agent
from kimi.application.agents.system_prompt import (
    SUBAGENT_NOTICE,
    ProjectText,
    build_prompt_arguments,
    render_agent_prompt,
)
from kimi.application.ports import Shell
from kimi.domain.agents.agent import BUILTIN_PROMPT, AgentSpec, bare_tool_name, check_tools
from kimi.domain.errors import ConfigError
from kimi.infrastructure.definitions.agent_files import load_agent_file
from kimi.infrastructure.definitions.agent_template import render_prompt
from kimi.infrastructure.definitions.project_files import PromptFiles
from kimi.interfaces.bootstrap.containers import KNOWN_TOOLS

ARGUMENTS = build_prompt_arguments(
    ProjectText("/w", "src/", "<!-- From: /w/AGENTS.md -->\nBe kind.", [("/more", "docs/")]),
    Shell("bash", "/bin/bash", "bash"),
    now="2026-11-21T12:00:00+01:00",
    system="Linux",
    skills="- cook",
)


USERS = PromptFiles("/elsewhere")
"""The rule for files outside of the project, which are the user's."""


def render(path: str, arguments: Mapping[str, str]) -> str:
    """The prompt of a file of the user."""
    return render_prompt(path, arguments, USERS)


def load(path: str) -> AgentSpec:
    """The agent of a file that may name any built-in tool."""
    return load_agent_file(path, KNOWN_TOOLS, USERS)


def ids(*names: str) -> tuple[str, ...]:
    """The ids of built-in tools by their names."""
    by_name = {bare_tool_name(tool_id): tool_id for tool_id in KNOWN_TOOLS}
    return tuple(by_name[name] for name in names)


def write(path: Path, text: str) -> str:
    """A file with this text, its directory made; gives its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def complete(directory: Path, **more: str) -> str:
    """An agent file that states all that is required, and `more` lines below `agent`."""
    write(directory / "p.md", "Hello ${KIMI_OS}")
    lines = {"name": "name: mine", "system_prompt_path": "system_prompt_path: p.md", "tools": "tools: [Shell]", **more}
    body = "\n".join(f"  {line}" for line in lines.values() if line)
    return write(directory / "agent.yaml", f"version: 1\nagent:\n{body}\n")


def failure(path: str) -> str:
    """What is said of a file that cannot be used."""
    with pytest.raises(ConfigError) as raised:
        load(path)
    return str(raised.value)


@pytest.mark.spec("R-113")
def test_agent_files_inherit_across_directories(tmp_path: Path) -> None:
    write(tmp_path / "base" / "prompt.md", "base ${TEAM} ${TONE}")
    write(tmp_path / "base" / "helper.yaml", "agent: {extend: default, name: helper, tools: [Glob], subagents: null}")
    base = """\
agent:
  name: base
  system_prompt_path: ./prompt.md
  system_prompt_args: {TEAM: payments, TONE: dry}
  tools: ["kimi_cli.tools.shell:Shell", Grep, "my_pkg.tools:Lookup"]
  exclude_tools: [Grep]
  model: fast
  when_to_use: often
  subagents:
    helper: {path: helper.yaml, description: Helps}
"""
    write(tmp_path / "base" / "agent.yaml", base)
    middle = "version: '1'\nagent:\n  extend: ../base/agent.yaml\n  system_prompt_args: {TONE: warm, N: 3}\n"
    write(tmp_path / "middle" / "agent.yaml", middle)

    inherited = load(write(tmp_path / "top" / "a.yaml", "agent: {extend: ../middle/agent.yaml, name: top}"))
    assert inherited.name == "top"
    assert inherited.prompt_path == str(tmp_path / "base" / "prompt.md")
    assert inherited.prompt_args == {"TEAM": "payments", "TONE": "warm", "N": "3"}
    assert inherited.tools == ("kimi_cli.tools.shell:Shell", "my_pkg.tools:Lookup")
    assert (inherited.model, inherited.when_to_use) == ("fast", "often")
    assert list(inherited.subagents) == ["helper"]
    assert inherited.subagents["helper"].spec.tools == ids("Glob")

    top = """\
agent:
  extend: ../middle/agent.yaml
  exclude_tools: null
  allowed_tools: [Think, Grep]
  subagents: null
  name: null
"""
    replaced = load(write(tmp_path / "top" / "b.yaml", top))
    assert replaced.name == "base"
    assert replaced.tools == ids("Think", "Grep")
    assert replaced.subagents == {}


@pytest.mark.spec("R-113")
def test_a_file_may_extend_the_default_agent(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.yaml", "agent: {extend: default, name: mine, exclude_tools: [Shell], x_unknown: [1, {a: b}]}"
    )
    agent = load(path)
    assert agent.tools == tuple(one for one in DEFAULT_TOOLS if one != ids("Shell")[0])
    assert (agent.prompt_path, list(agent.subagents)) == (BUILTIN_PROMPT, ["coder", "explore", "plan"])
    alone = load(write(tmp_path / "b.yaml", "agent: {extend: default, name: mine, subagents: {}}"))
    assert alone.subagents == {}
    assert "SendDMail" in load(write(tmp_path / "c.yaml", "agent: {extend: okabe}")).tools[-1]


def test_explicit_null_removes_the_tools(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "agent: {extend: default, tools: null}")
    assert failure(path) == "Tools are required"
    assert load(write(tmp_path / "b.yaml", "agent: {extend: default, tools: []}")).tools == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agent: [", "Invalid YAML in agent spec file: "),
        ("just text", "Invalid YAML in agent spec file: "),
        ("version: 2\nagent: {}", "Unsupported agent spec version: 2"),
        ("agent: {}", "Agent name is required"),
        ("agent: {name: ''}", "Agent name is required"),
        ("agent: {name: x}", "System prompt path is required"),
        ("agent: {name: x, system_prompt_path: p.md}", "Tools are required"),
        ("agent: {name: x, system_prompt_path: p.md, tools: []}", "System prompt file not found: {dir}/p.md"),
        ("agent: {name: x, system_prompt_path: ., tools: []}", "System prompt path is not a file: {dir}"),
        ("agent: {extend: other.yaml}", "Agent spec file not found: {dir}/other.yaml"),
        ("agent: {extend: .}", "Agent spec path is not a file: {dir}"),
        ("agent: {extend: a.yaml}", "Agent spec extends itself: {dir}/a.yaml -> {dir}/a.yaml"),
        ("agent: 7", "Invalid agent spec in {dir}/a.yaml: `agent` must be a mapping"),
        ("agent: {name: [x]}", "Invalid agent spec in {dir}/a.yaml: `name` must be a text"),
        ("agent: {name: x, tools: Shell}", "Invalid agent spec in {dir}/a.yaml: `tools` must be a list"),
        ("agent: {name: x, tools: [1]}", "Invalid agent spec in {dir}/a.yaml: `tools` must be a list of texts"),
        ("agent: {name: x, subagents: {y: 1}}", "Invalid agent spec in {dir}/a.yaml: the subagent `y` needs a `path`"),
        (
            "agent: {extend: default, subagents: {y: {path: y.yaml}}}",
            "Agent spec file not found: {dir}/y.yaml",
        ),
    ],
)
def test_invalid_agent_file_is_refused_with_a_reason(tmp_path: Path, text: str, message: str) -> None:
    said = failure(write(tmp_path / "a.yaml", text))
    assert said.startswith(message.replace("{dir}", os.path.realpath(tmp_path)))


def test_circular_inheritance_is_reported(tmp_path: Path) -> None:
    one = write(tmp_path / "one.yaml", "agent: {extend: two.yaml}")
    two = write(tmp_path / "two.yaml", "agent: {extend: one.yaml}")
    assert failure(one) == f"Agent spec extends itself: {one} -> {two} -> {one}"
    assert failure(str(tmp_path / "none.yaml")) == f"Agent spec file not found: {tmp_path / 'none.yaml'}"
    assert failure(str(tmp_path)) == f"Agent spec path is not a file: {tmp_path}"


def test_yaml_can_build_no_objects(tmp_path: Path) -> None:
    text = "agent: {name: !!python/object/apply:os.system ['exit 1']}"
    assert failure(write(tmp_path / "a.yaml", text)).startswith("Invalid YAML in agent spec file: ")


def test_a_subagent_that_extends_its_own_parent_ends(tmp_path: Path) -> None:
    path = complete(tmp_path, subagents="subagents: {me: {path: agent.yaml, description: Again}}")
    agent = load(path)
    assert agent.subagents["me"].spec.subagents == {}
    assert agent.subagents["me"].spec.prompt_args == {"ROLE_ADDITIONAL": SUBAGENT_NOTICE}


DOCUMENTED_TOOLS = (
    "agent:Agent", "multiagent:Task", "multiagent:CreateSubagent", "dmail:SendDMail", "think:Think",
    "ask_user:AskUserQuestion", "todo:SetTodoList", "shell:Shell", "background:TaskList", "background:TaskOutput",
    "background:TaskStop", "file:ReadFile", "file:ReadMediaFile", "file:Glob", "file:Grep", "file:WriteFile",
    "file:StrReplaceFile", "web:SearchWeb", "web:FetchURL", "plan:ExitPlanMode", "plan.enter:EnterPlanMode",
)  # fmt: skip
"""The table of tools spec 7.2, below `kimi_cli.tools.`."""


@pytest.mark.spec("R-117")
def test_unknown_tools_are_all_named(tmp_path: Path) -> None:
    agent = load(complete(tmp_path, tools='tools: ["evil_pkg.tools:Bad", Shell, "evil_pkg:Worse"]'))
    with pytest.raises(ConfigError) as raised:
        check_tools(agent, KNOWN_TOOLS.__contains__)
    assert str(raised.value) == "Invalid tools: ['evil_pkg.tools:Bad', 'evil_pkg:Worse']"


@pytest.mark.spec("R-117", "T-142")
def test_tools_are_named_by_table_id_or_bare_name(tmp_path: Path) -> None:
    assert sorted(KNOWN_TOOLS) == sorted(f"kimi_cli.tools.{path}" for path in DOCUMENTED_TOOLS)
    agent = load(complete(tmp_path, tools=f"tools: {json.dumps(list(KNOWN_TOOLS))}"))
    check_tools(agent, KNOWN_TOOLS.__contains__)
    assert agent.tools == KNOWN_TOOLS
    bare = [bare_tool_name(one) for one in KNOWN_TOOLS]
    assert load(complete(tmp_path, tools=f"tools: {json.dumps(bare)}")).tools == KNOWN_TOOLS
    assert load(complete(tmp_path, tools='tools: ["my_pkg.tools:Shell"]')).tools == ("my_pkg.tools:Shell",)


@pytest.mark.spec("R-119")
def test_built_in_agents_have_documented_tools_and_prompts() -> None:
    default, okabe = build_builtin_agent("default"), build_builtin_agent("okabe")
    assert [one.rpartition(":")[2] for one in default.tools] == [
        "Agent", "AskUserQuestion", "SetTodoList", "Shell", "TaskList", "TaskOutput", "TaskStop", "ReadFile",
        "ReadMediaFile", "Glob", "Grep", "WriteFile", "StrReplaceFile", "SearchWeb", "FetchURL", "ExitPlanMode",
        "EnterPlanMode",
    ]  # fmt: skip
    assert set(okabe.tools) <= set(KNOWN_TOOLS)
    assert set(okabe.tools) == {*default.tools, *ids("SendDMail")}
    for one in (default, okabe):
        assert {name: kind.spec for name, kind in one.subagents.items()} == {
            "coder": CODER,
            "explore": EXPLORE,
            "plan": PLAN,
        }
    writing, shell = set(ids("WriteFile", "StrReplaceFile")), set(ids("Shell"))
    reading = set(ids("ReadFile", "ReadMediaFile", "Glob", "Grep", "SearchWeb", "FetchURL"))
    assert set(CODER.tools) == reading | writing | shell
    assert set(EXPLORE.tools) == reading | shell
    assert set(PLAN.tools) == reading
    assert [spec.ask_commands for spec in (default, CODER, EXPLORE, PLAN)] == [False, False, True, False]
    assert [spec.is_read_only for spec in (default, CODER, EXPLORE, PLAN)] == [False, False, True, True]
    assert "You are a subagent" not in render_agent_prompt(default, ARGUMENTS, render)
    for spec in (CODER, EXPLORE, PLAN):
        assert "You are a subagent" in render_agent_prompt(spec, ARGUMENTS, render)


# --- templates --------------------------------------------------------------------------------------------------


def rendered(directory: Path, text: str, arguments: Mapping[str, str]) -> str:
    """A template with its arguments."""
    return render(write(directory / "p.md", text), arguments)


@pytest.mark.spec("R-115")
def test_templates_are_rendered_with_arguments(tmp_path: Path) -> None:
    write(tmp_path / "part.md", "part for ${TEAM}")
    text = (
        "\n\n${TEAM}: {% if TONE == 'dry' %}dry{% else %}warm{% endif %} $TEAM $$ {literal} {% include 'part.md' %}\n"
    )
    assert rendered(tmp_path, text, {"TEAM": "pay", "TONE": "dry"}) == "pay: dry $TEAM $$ {literal} part for pay"
    with pytest.raises(ConfigError) as raised:
        rendered(tmp_path, "${NOBODY}", {})
    assert str(raised.value) == f"Missing system prompt arg in {tmp_path / 'p.md'}: 'NOBODY' is undefined"
    with pytest.raises(ConfigError, match=r"Invalid system prompt template: .*p\.md: "):
        rendered(tmp_path, "{% if %}", {})

    names = (
        "KIMI_NOW", "KIMI_WORK_DIR", "KIMI_WORK_DIR_LS", "KIMI_AGENTS_MD", "KIMI_SKILLS", "KIMI_ADDITIONAL_DIRS_INFO",
        "KIMI_OS", "KIMI_SHELL", "ROLE_ADDITIONAL",
    )  # fmt: skip
    assert set(ARGUMENTS) == set(names)
    shown = rendered(tmp_path, "\n".join(f"{name}=${{{name}}}" for name in names), ARGUMENTS)
    assert "KIMI_NOW=2026-11-21T12:00:00+01:00\nKIMI_WORK_DIR=/w\nKIMI_WORK_DIR_LS=src/\n" in shown
    assert "Be kind." in shown
    assert "KIMI_SKILLS=- cook\n" in shown
    assert "`/more`" in shown
    assert "KIMI_OS=Linux\nKIMI_SHELL=bash (`/bin/bash`)" in shown


@pytest.mark.spec("R-115")
def test_arguments_of_a_file_win_over_the_built_in_ones(tmp_path: Path) -> None:
    agent = load(complete(tmp_path, system_prompt_args="system_prompt_args: {KIMI_OS: Plan 9}"))
    assert render_agent_prompt(agent, ARGUMENTS, render) == "Hello Plan 9"
    own = load(
        write(tmp_path / "own.yaml", "agent: {extend: default, system_prompt_args: {ROLE_ADDITIONAL: You rhyme.}}")
    )
    assert "\nYou rhyme.\n" in render_agent_prompt(own, ARGUMENTS, render)


@pytest.mark.parametrize(
    "text",
    [
        "{% include '../secret.md' %}",
        "{% include '/etc/hostname' %}",
        "${''.__class__.__mro__[1].__subclasses__()}",
        "${1 / 0}",
        "{% include 'p.md' %}",
    ],
)
def test_template_cannot_read_other_files(tmp_path: Path, text: str) -> None:
    write(tmp_path / "secret.md", "secret")
    with pytest.raises(ConfigError):
        rendered(tmp_path / "agents", text, {})


# --- agent files that somebody else made ------------------------------------------------------------------------


def project_agent(project: Path, members: str) -> AgentSpec:
    """The agent of a file in a project."""
    path = write(project / "agents" / "a.yaml", f"agent:\n  name: x\n  tools: []\n  {members}")
    return load_agent_file(path, KNOWN_TOOLS, PromptFiles(str(project)))


@pytest.mark.spec("R-205")
@pytest.mark.parametrize(
    "members",
    [
        "system_prompt_path: OUTSIDE/private.md",
        "system_prompt_path: ../../private.md",
        "system_prompt_path: link.md",
        "system_prompt_path: linked/private.md",
        "system_prompt_path: ../.env",
        "system_prompt_path: /proc/self/environ",
        "system_prompt_path: /dev/zero",
        "extend: OUTSIDE/base.yaml",
        "extend: linked/base.yaml",
        "system_prompt_path: own.md\n  subagents: {s: {path: linked/base.yaml, description: d}}",
        "system_prompt_path: own.md\n  subagents: {s: {path: inner.yaml, description: d}}",
    ],
)
def test_an_agent_of_a_project_names_no_file_outside_of_it(members: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    write(tmp_path / "private.md", "SECRET")
    write(tmp_path / "base.yaml", "agent: {name: b, tools: [], system_prompt_path: private.md}")
    write(project / ".env", "SECRET")
    write(project / "agents/own.md", "own")
    write(project / "agents/inner.yaml", "agent: {name: i, tools: [], system_prompt_path: link.md}")
    os.symlink(tmp_path / "private.md", project / "agents/link.md")
    os.symlink(tmp_path, project / "agents/linked")
    with pytest.raises(ConfigError, match=r"cannot be used|is not a file"):
        project_agent(project, members.replace("OUTSIDE", str(tmp_path)))


@pytest.mark.spec("R-205")
def test_an_agent_may_name_files_of_its_project_and_a_users_agent_any(tmp_path: Path) -> None:
    project = tmp_path / "project"
    write(project / "prompts/p.md", "Hello")
    agent = project_agent(project, "system_prompt_path: ../prompts/p.md")
    assert render_prompt(agent.prompt_path, {}, PromptFiles(str(project))) == "Hello"
    write(tmp_path / "shared/p.md", "Shared")
    path = write(tmp_path / "agents/u.yaml", "agent: {name: u, tools: [], system_prompt_path: ../shared/p.md}")
    users = load_agent_file(path, KNOWN_TOOLS, PromptFiles(str(project)))
    assert render_prompt(users.prompt_path, {}, PromptFiles(str(project))) == "Shared"
    write(tmp_path / "shared/id_rsa", "SECRET")
    write(tmp_path / "agents/u.yaml", "agent: {name: u, tools: [], system_prompt_path: ../shared/id_rsa}")
    with pytest.raises(ConfigError, match="it may hold secrets"):
        load_agent_file(path, KNOWN_TOOLS, PromptFiles(str(project)))


@pytest.mark.spec("R-205")
@pytest.mark.parametrize("target", ["../secret.md", "/etc/hostname", ".env", "pipe"])
def test_a_template_includes_no_file_by_a_link(target: str, tmp_path: Path) -> None:
    write(tmp_path / "secret.md", "SECRET")
    write(tmp_path / "agents/.env", "SECRET")
    os.mkfifo(tmp_path / "agents/pipe")
    os.symlink(target, tmp_path / "agents/part.md")
    with pytest.raises(ConfigError, match=r"part\.md"):
        rendered(tmp_path / "agents", "{% include 'part.md' %}", {})


@pytest.mark.spec("R-205")
def test_an_agent_file_that_stands_for_billions_of_values_is_refused(tmp_path: Path) -> None:
    names = list(pairwise("abcdefghij"))
    doubled = "".join(f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in names)
    path = write(tmp_path / "a.yaml", f"a: &a [x, x, x, x, x, x, x, x, x]\n{doubled}agent: {{name: x}}")
    with pytest.raises(ConfigError, match="more than 20000 values"):
        load(path)
    path = write(tmp_path / "a.yaml", "agent: &base {name: x}\nother: *base\n")
    with pytest.raises(ConfigError, match="System prompt path is required"):
        load(path)
