// The events of the wire to the items that a page shows: a flat list of small values, and what holds for the whole
// conversation (context, plan mode, todo list, tasks). Nothing here knows the page.

import { addText, newChunk } from "./chunks.js";
import { callTitle } from "./titles.js";

let lastId = 0;

/** What one conversation, or one subagent, has said and done. `changed(item, isNew)` is told of every change. */
export class Transcript {
  /** `now` is the clock in seconds; it gives 0 while the past is read, of which the times are unknown. */
  constructor(changed, now = () => Date.now() / 1000) {
    this.items = [];
    this.status = { context: null, plan: false, usage: null, mcp: null, activity: "", todos: null };
    this.tasks = new Map();
    this.depth = 0;
    this.turnStarted = 0;
    this.changed = changed;
    this.now = now;
    this.calls = new Map();
    this.open = null;
    this.lastCall = null;
    this.stepAt = 0;
  }

  get running() {
    return this.depth > 0;
  }

  /** Handle the next event. Unknown ones are ignored, as the protocol asks. */
  handle(type, payload) {
    if (Object.hasOwn(HANDLERS, type)) HANDLERS[type](this, payload ?? {});
  }

  /** Add a note of the page itself. `text` comes from outside; `key` names a text of the page. */
  note(level, text, key = "", values = {}) {
    closeOpen(this);
    return add(this, { kind: "note", level, text, key, values });
  }

  /** Return the open call with this id, also of a subagent, or null. */
  findCall(id) {
    const own = this.calls.get(id);
    if (own) return own;
    for (const call of this.calls.values()) {
      const found = call.children?.findCall(id);
      if (found) return found;
    }
    return null;
  }

  /** Settle everything that is open, when the turn is over or the connection cannot tell. */
  endTurn() {
    closeOpen(this);
    for (const call of this.calls.values()) {
      call.children?.endTurn();
      finishCall(this, call, "stopped", null);
    }
    this.calls.clear();
    this.depth = 0;
    this.status.activity = "";
  }
}

const HANDLERS = {
  TurnBegin(self, { user_input: input }) {
    closeOpen(self);
    self.depth += 1;
    if (self.depth === 1) self.turnStarted = self.now();
    add(self, { kind: "user", ...readInput(input), steer: false, nested: self.depth > 1 });
  },
  TurnEnd(self) {
    closeOpen(self);
    if (self.depth > 1) self.depth -= 1;
    else self.endTurn();
  },
  StepBegin(self) {
    closeOpen(self);
    self.stepAt = self.items.length;
  },
  StepInterrupted: closeOpen,
  StepRetry(self, payload) {
    closeOpen(self);
    for (const item of self.items.slice(self.stepAt)) {
      if (!["text", "think", "tool", "media"].includes(item.kind)) continue;
      item.dropped = true;
      if (item.kind === "tool") self.calls.delete(item.call);
      self.changed(item, false);
    }
    const status = payload.status_code ? ` ${payload.status_code}` : "";
    self.note("warning", "", "retry", {
      why: `${payload.error_type}${status}`, next: payload.next_attempt, most: payload.max_attempts,
    });
  },
  SteerInput(self, { user_input: input }) {
    closeOpen(self);
    add(self, { kind: "user", ...readInput(input), steer: true, nested: false });
  },
  CompactionBegin(self) {
    self.status.activity = "compacting";
    self.compaction = self.note("info", "", "compacting");
  },
  CompactionEnd(self) {
    self.status.activity = "";
    if (self.compaction) Object.assign(self.compaction, { key: "compacted" }) && self.changed(self.compaction, false);
    self.compaction = null;
  },
  MCPLoadingBegin: (self) => void (self.status.activity = "mcp"),
  MCPLoadingEnd: (self) => void (self.status.activity = ""),
  StatusUpdate(self, payload) {
    const { status } = self;
    if (payload.context_usage !== null && payload.context_usage !== undefined) {
      status.context = { usage: payload.context_usage, tokens: payload.context_tokens, most: payload.max_context_tokens };
    }
    if (typeof payload.plan_mode === "boolean") status.plan = payload.plan_mode;
    if (payload.mcp_status) status.mcp = payload.mcp_status;
    if (payload.usage) status.usage = payload.usage;
  },
  ContentPart: addPart,
  ToolCall(self, payload) {
    closeOpen(self);
    const args = payload.function?.arguments ?? "";
    const name = payload.function?.name ?? "";
    const call = add(self, {
      kind: "tool", call: payload.id, name, args, title: callTitle(name, args), state: "running", result: null,
      children: null, started: self.now(), seconds: 0, asked: "",
    });
    self.calls.set(payload.id, call);
    self.lastCall = call;
  },
  ToolCallPart(self, { arguments_part: part }) {
    if (!self.lastCall || !part) return;
    const call = self.lastCall;
    const known = call.args.length;
    call.args += part;
    if (known < 4000) call.title = callTitle(call.name, call.args);
    self.changed(call, false);
  },
  ToolResult(self, { tool_call_id: id, return_value: value }) {
    closeOpen(self);
    const call = self.calls.get(id);
    if (!call) return;
    self.calls.delete(id);
    for (const block of value.display ?? []) noteDisplay(self, block);
    finishCall(self, call, value.is_error ? "error" : "ok", value);
  },
  SubagentEvent(self, payload) {
    const call = self.calls.get(payload.parent_tool_call_id ?? payload.task_tool_call_id);
    if (!call || !payload.event) return;
    call.children ??= new Transcript(() => self.changed(call, false), self.now);
    call.agent = payload.subagent_type ?? "";
    call.children.handle(payload.event.type, payload.event.payload);
    self.changed(call, false);
  },
  PlanDisplay(self, payload) {
    closeOpen(self);
    add(self, { kind: "plan", text: payload.content, path: payload.file_path });
  },
  Notification(self, payload) {
    if (payload.category === "task") {
      const known = self.tasks.get(payload.source_id) ?? { id: payload.source_id, description: "" };
      self.tasks.set(payload.source_id, { ...known, status: payload.payload?.status ?? payload.type });
    }
    const level = ["success", "warning", "error"].includes(payload.severity) ? payload.severity : "info";
    self.note(level, payload.body ? `${payload.title}: ${payload.body}` : payload.title);
  },
  HookResolved(self, payload) {
    if (payload.action === "block") self.note("warning", "", "hook", { event: payload.event, reason: payload.reason });
  },
  BtwBegin(self, payload) {
    closeOpen(self);
    self.btw = add(self, { kind: "btw", question: payload.question, text: "", state: "running" });
  },
  BtwEnd(self, payload) {
    if (!self.btw) return;
    Object.assign(self.btw, { text: payload.response ?? payload.error ?? "", state: payload.response ? "ok" : "error" });
    self.changed(self.btw, false);
    self.btw = null;
  },
};

function add(self, values) {
  const item = { id: (lastId += 1), dropped: false, unfolded: null, ...values };
  self.items.push(item);
  self.changed(item, true);
  return item;
}

function addPart(self, part) {
  if (part.type === "text") return addStreamed(self, "text", part.text);
  if (part.type === "think") return addStreamed(self, "think", part.think);
  const url = part[part.type]?.url;
  if (typeof url !== "string") return undefined;
  closeOpen(self);
  return add(self, { kind: "media", media: { type: part.type, url } });
}

function addStreamed(self, kind, piece) {
  if (!piece) return;
  if (self.open?.kind !== kind) {
    closeOpen(self);
    self.open = add(self, kind === "text"
      ? { kind, chunk: newChunk(), open: true, first: true }
      : { kind, text: "", open: true, started: self.now(), seconds: 0 });
  }
  if (kind === "think") {
    self.open.text += piece;
    self.changed(self.open, false);
    return;
  }
  for (const chunk of addText(self.open.chunk, piece)) {
    self.open.open = false;
    self.changed(self.open, false);
    self.open = add(self, { kind, chunk, open: true, first: false });
  }
  self.changed(self.open, false);
}

function closeOpen(self) {
  const item = self.open;
  if (!item) return;
  self.open = null;
  item.open = false;
  if (item.kind === "think") item.seconds = item.started && self.now() - item.started;
  self.changed(item, false);
}

function finishCall(self, call, state, value) {
  call.state = state;
  call.result = value;
  call.seconds = call.started && self.now() - call.started;
  self.changed(call, false);
}

function noteDisplay(self, block) {
  if (block.type === "todo" && Array.isArray(block.items)) self.status.todos = block.items;
  if (block.type === "background_task") {
    self.tasks.set(block.task_id, {
      id: block.task_id, kind: block.kind, status: block.status, description: block.description,
    });
  }
}

/** Return the text and the media of what a user wrote. */
export function readInput(input) {
  if (typeof input === "string") return { text: input, media: [] };
  const parts = Array.isArray(input) ? input : [];
  return {
    text: parts.filter((part) => part.type === "text").map((part) => part.text).join("\n"),
    media: parts.filter((part) => part[part.type]?.url).map((part) => ({ type: part.type, url: part[part.type].url })),
  };
}

/** Return what a tool gave back as text and media. */
export function readOutput(value) {
  return typeof value.output === "string" ? { text: value.output, media: [] } : readInput(value.output);
}
