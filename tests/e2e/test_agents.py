"""Agents and subagents of the real process: agent files, third-party tools, the Agent tool on the wire."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program.wire_process import Json, Place, approve, read_lines
from tests.support.providers.scripts import call, shell, step

REPORT = "text: " + "I ran the command, read what it said and found nothing that is out of order. " * 4
AGENT = call("p1", "Agent", {"description": "look around", "prompt": "look"})


def write(path: Path, text: str) -> str:
    """A file with this text, its directory made; gives its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(place: Place, *arguments: str) -> str:
    """What a start that fails with status 1 says, without line breaks."""
    done = place.run("--wire", *arguments)
    assert done.returncode == 1
    assert done.stdout == b""
    return " ".join(done.stderr.decode().split())


@pytest.mark.spec("W-95", "W-88", "R-122")
def test_subagent_events_are_sent_on_the_wire(place: Place) -> None:
    place.script(AGENT, step("text: Let me see.", shell("c1", "echo found")), REPORT, "text: done")
    with place.wire() as kimi:
        kimi.initialize()
        seen: list[Json] = []

        def note(params: Json) -> Json | None:
            seen.append(params["payload"])
            return approve(params)

        assert kimi.prompt("go", note)["result"] == {"status": "finished"}
        wrapped = kimi.payloads("SubagentEvent")
        assert [one["event"]["type"] for one in wrapped] == [
            "TurnBegin", "StepBegin", "ContentPart", "ToolCall", "StatusUpdate", "ToolResult",
            "StepBegin", "ContentPart", "StatusUpdate", "TurnEnd",
        ]  # fmt: skip
        for one in wrapped:
            assert one["parent_tool_call_id"] == one["task_tool_call_id"] == "p1"
            assert one["subagent_type"] == "coder"
        (request,) = seen
        assert request["agent_id"] == wrapped[0]["agent_id"]
        assert (request["subagent_type"], request["source_kind"]) == ("coder", "foreground_turn")
        assert request["tool_call_id"] == "c1"
        assert kimi.types.count("ApprovalResponse") == 1
        order = kimi.types
        first, last = order.index("SubagentEvent"), len(order) - 1 - order[::-1].index("SubagentEvent")
        assert order[:first] == ["TurnBegin", "StepBegin", "ToolCall", "StatusUpdate"]
        assert first < order.index("ApprovalRequest") < order.index("ApprovalResponse") < last
        assert order[last + 1 :] == ["ToolResult", "StepBegin", "ContentPart", "StatusUpdate", "TurnEnd"]
        output = kimi.payloads("ToolResult")[0]["return_value"]["output"]
        assert output.startswith(f"agent_id: {request['agent_id']}\nresumed: false\n")

    (session,) = place.session_dirs()
    child = session / "subagents" / request["agent_id"]
    assert json.loads((child / "meta.json").read_text())["status"] == "completed"
    records = [line["message"]["type"] for line in read_lines(child / "wire.jsonl")[1:]]
    assert records == [one["event"]["type"] for one in wrapped]
    assert [line["role"] for line in read_lines(child / "context.jsonl")][:3] == [
        "_system_prompt",
        "_checkpoint",
        "user",
    ]
    recorded = [line["message"]["type"] for line in place.recorded()[1:]]
    assert recorded.count("SubagentEvent") == len(wrapped)
    assert "ApprovalRequest" not in recorded


@pytest.mark.spec("R-122", "R-124")
def test_subagent_resumes_after_restart(place: Place) -> None:
    place.script(AGENT, REPORT, "text: done")
    with place.wire("--session", "s") as kimi:
        kimi.initialize()
        kimi.prompt("go")
        agent_id = kimi.payloads("SubagentEvent")[0]["agent_id"]
        assert kimi.finish() == 0
    (session,) = place.session_dirs()
    meta = session / "subagents" / agent_id / "meta.json"
    stored = json.loads(meta.read_text())
    meta.write_text(json.dumps({**stored, "status": "running_foreground"}))  # as if its process had been killed

    place.script(
        call("p2", "Agent", {"description": "more", "prompt": "go on", "resume": agent_id}), REPORT, "text: done"
    )
    with place.wire("--session", "s") as kimi:
        kimi.initialize(protocol_version="1.1")
        assert json.loads(meta.read_text())["status"] == "failed"
        kimi.prompt("more")
        parents = [(one["parent_tool_call_id"], one["task_tool_call_id"]) for one in kimi.payloads("SubagentEvent")]
        assert set(parents) == {("p2", "p2")}  # both keys, also for a client of the first version
        output = kimi.payloads("ToolResult")[0]["return_value"]["output"]
        assert output.startswith(f"agent_id: {agent_id}\nresumed: true\n")
    roles = [line["role"] for line in read_lines(meta.parent / "context.jsonl")]
    assert (roles.count("user"), roles.count("_system_prompt")) == (2, 1)


def test_a_subagent_has_the_tools_of_its_type_only(place: Place) -> None:
    place.script(
        call("p1", "Agent", {"description": "plan", "prompt": "plan it", "subagent_type": "plan"}),
        step(shell("c1", "ls"), call("c2", "Mine"), call("c3", "Agent"), call("c4", "Glob", {"pattern": "*.py"})),
        REPORT,
        "text: done",
    )
    with place.wire("--yolo") as kimi:
        kimi.initialize(external_tools=[{"name": "Mine", "description": "", "parameters": {"type": "object"}}])
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        results = [one["event"]["payload"] for one in kimi.payloads("SubagentEvent")]
        told = {one["tool_call_id"]: one["return_value"]["message"] for one in results if "return_value" in one}
        for call_id, name in (("c1", "Shell"), ("c2", "Mine"), ("c3", "Agent")):
            assert told[call_id] == f"Tool `{name}` not found"
        assert "not found" not in told["c4"]


def test_model_alias_selects_the_subagent_model(place: Place) -> None:
    write(place.root / "fast.json", json.dumps([REPORT]))
    place.config = (
        "[providers.fast]\ntype = '_scripted_echo'\nbase_url = ''\napi_key = ''\n"
        f"env = {{KIMI_SCRIPTED_ECHO_SCRIPTS = {json.dumps(str(place.root / 'fast.json'))}}}\n"
        "[models.fast]\nprovider = 'fast'\nmodel = 'x'\nmax_context_size = 1000\n"
    )
    fast = call("p1", "Agent", {"description": "look", "prompt": "look", "model": "fast"})
    none = call("p2", "Agent", {"description": "look", "prompt": "look", "model": "none"})
    place.script(fast, none, "text: done")
    with place.wire() as kimi:
        kimi.initialize()
        assert kimi.prompt("go")["result"] == {"status": "finished"}
        first, second = (one["return_value"] for one in kimi.payloads("ToolResult"))
        assert "status: completed" in first["output"]
        assert (second["message"], second["display"][0]["text"]) == (
            "Unknown model alias: none",
            "Invalid model alias",
        )


def test_cancel_ends_a_subagent_and_its_command(place: Place) -> None:
    place.script(AGENT, shell("c1", "echo $$ > pid; sleep 60"))
    with place.wire("--yolo") as kimi:
        kimi.initialize()
        kimi.call("prompt", {"user_input": "go"})
        while not (place.work / "pid").exists():
            kimi.quiet(0.05)
        cancel = kimi.call("cancel")
        assert kimi.response(cancel)["result"] == {}
        kimi.until("TurnEnd")
        wrapped = [one["event"]["type"] for one in kimi.payloads("SubagentEvent")]
        assert wrapped[-3:] == ["ToolResult", "StepInterrupted", "TurnEnd"]
        assert kimi.finish() == 0


# --- agents -----------------------------------------------------------------------------------------------------


def test_an_agent_file_gives_prompt_and_tools(place: Place) -> None:
    write(place.root / "agents" / "p.md", "\n${GREETING} from ${KIMI_WORK_DIR}\n")
    path = write(
        place.root / "agents" / "a.yaml",
        "version: 1\nagent:\n  name: mine\n  system_prompt_path: p.md\n  system_prompt_args: {GREETING: Hello}\n"
        '  tools: ["kimi_cli.tools.think:Think"]\n',
    )
    place.script(step(shell("c1", "ls"), call("c2", "Think", {"thought": "hm"})), "text: done")
    with place.wire("--agent-file", path) as kimi:
        kimi.initialize()
        kimi.prompt("go")
        told = {one["tool_call_id"]: one["return_value"] for one in kimi.payloads("ToolResult")}
        assert told["c1"]["message"] == "Tool `Shell` not found"
        assert not told["c2"]["is_error"]
    assert place.context()[0] == {"role": "_system_prompt", "content": f"Hello from {place.work}"}


def test_the_built_in_agents_can_be_chosen(place: Place) -> None:
    for name in ("default", "okabe"):
        place.script("text: hello")
        with place.wire("--agent", name) as kimi:
            kimi.initialize()
            assert kimi.prompt("go")["result"] == {"status": "finished"}


@pytest.mark.spec("R-114")
def test_mistakes_in_an_agent_file_end_the_start(place: Place) -> None:
    root = place.root / "agents"
    write(root / "p.md", "${NOBODY}")
    write(root / "bad.md", "{% if %}")
    whole = "agent: {name: x, system_prompt_path: p.md, tools: [Shell], extend: EXTEND}"
    for text, said in (
        ("agent: {extend: none.yaml}", f"Agent spec file not found: {root / 'none.yaml'}"),
        ("agent: {extend: .}", f"Agent spec path is not a file: {root}"),
        ("agent: [", "Invalid YAML in agent spec file: "),
        ("version: 2\nagent: {}", "Unsupported agent spec version: 2"),
        ("agent: {}", "Agent name is required"),
        ("agent: {name: x}", "System prompt path is required"),
        ("agent: {name: x, system_prompt_path: p.md}", "Tools are required"),
        ("agent: {name: x, system_prompt_path: p.md, tools: ['a.b:C', Shell, 'd:E']}", "['a.b:C', 'd:E']"),
        (whole.replace(", extend: EXTEND", ""), f"Missing system prompt arg in {root / 'p.md'}: "),
        ("agent: {name: x, system_prompt_path: bad.md, tools: []}", f"Invalid system prompt template: {root}"),
        (whole.replace("EXTEND", "a.yaml"), f"Agent spec extends itself: {root / 'a.yaml'} -> "),
    ):
        path = write(root / "a.yaml", text)
        assert unwrapped(said) in unwrapped(refusal(place, "--agent-file", path)), text


def unwrapped(text: str) -> str:
    """Without the white space that a narrow terminal may have put in."""
    return "".join(text.split())


def third_party(place: Place) -> None:
    """Install, in a directory of its own, a distribution that registers the tool `my_pkg.tools:Lookup`."""
    site = place.root / "site"
    write(
        site / "my_pkg.py",
        """\
from contextlib import asynccontextmanager
from kimi.application.ports import PreparedCall
from kimi.domain.tools.tool import ToolSpec, tool_ok

class Lookup:
    spec = ToolSpec("Lookup", "Looks up.", {"type": "object"})
    def __init__(self, workspace):
        self.workspace = workspace
    @asynccontextmanager
    async def prepare(self, arguments, context):
        async def run():
            return tool_ok("found in " + self.workspace.work_dir)
        yield PreparedCall(run)
""",
    )
    info = site / "my_pkg-1.0.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: my-pkg\nVersion: 1.0\n")
    write(info / "entry_points.txt", "[kimi.tools]\nmy_pkg.tools:Lookup = my_pkg:Lookup\n")
    place.environ["PYTHONPATH"] = str(site)


@pytest.mark.spec("R-118")
def test_registered_tool_of_a_distribution_is_available(place: Place) -> None:
    third_party(place)
    path = write(place.root / "a.yaml", "agent: {extend: default, tools: ['my_pkg.tools:Lookup']}")
    place.script(call("c1", "Lookup"), "text: done")
    with place.wire("--agent-file", path) as kimi:
        taken = kimi.initialize(
            external_tools=[{"name": "Lookup", "description": "", "parameters": {"type": "object"}}]
        )
        assert taken["external_tools"]["rejected"] == [{"name": "Lookup", "reason": "conflicts with builtin tool"}]
        kimi.prompt("go")
        assert kimi.payloads("ToolResult")[0]["return_value"]["output"] == f"found in {place.work}"


@pytest.mark.spec("T-30")
def test_tool_path_is_not_imported(place: Place) -> None:
    write(place.root / "site" / "evil_pkg" / "__init__.py", "open('/proc/self/cwd/imported', 'w')")
    place.environ["PYTHONPATH"] = str(place.root / "site")
    path = write(place.root / "a.yaml", "agent: {extend: default, tools: ['evil_pkg:Bad', Shell, 'evil_pkg.x:Worse']}")
    assert unwrapped("Invalid tools: ['evil_pkg:Bad', 'evil_pkg.x:Worse']") in unwrapped(
        refusal(place, "--agent-file", path)
    )
    assert not (place.work / "imported").exists()
