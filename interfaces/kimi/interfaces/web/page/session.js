// A session that is open on the page: its wire, its transcript, the requests that wait, and the messages of its queue.

import { readInput, Transcript } from "./model/transcript.js";
import { storedDraft, storedQueue, storeDraft, storeQueue } from "./preferences.js";
import { Wire } from "./wire.js";

const LIVE_BUDGET = 12;
const PAST_BUDGET = 60;
const CLIENT = { name: "kimi web", version: "1" };
const CAPABILITIES = { supports_question: true, supports_plan_mode: true, supports_usage: true };

/**
 * `view` is told what happens: `reset()`, `item(item, isNew)`, `ready(wasPast)`, `asks(request)`, `turn(what, seconds)`,
 * `connection(state, payload)`, `queueChanged()`, `changedSession()`, `unsent(input)`, `noConnection()`, and `show()` after
 * each batch.
 */
export class Session {
  constructor(id, view) {
    this.id = id;
    this.view = view;
    this.requests = new Map();
    this.commands = [];
    this.queue = storedQueue(id);
    this.held = false;
    this.running = false;
    this.past = true;
    this.waiting = [];
    this.sent = null;
    this.cut = false;
    this.restart();
    this.wire = new Wire(id, {
      message: (message) => this.take(message),
      connection: (state, code) => this.connection(state, code),
    });
  }

  restart() {
    this.requests.clear();
    this.past = true;
    this.transcript = new Transcript((item, isNew) => this.view.item(item, isNew), () => (this.past ? 0 : Date.now() / 1000));
    this.view.reset();
  }

  connection(state, code) {
    this.refused = state === "refused";
    this.view.connection(state, { code });
    if (state !== "open") return;
    this.wire.call("initialize", { protocol_version: "1.10", client: CLIENT, capabilities: CAPABILITIES }).then((result) => {
      this.commands = result.slash_commands ?? [];
    }, () => {});
  }

  // Messages wait for the next frame, so that a frame is drawn once however many pieces came.
  take(message) {
    this.waiting.push(message);
    if (this.waiting.length === 1) this.schedule();
  }

  schedule() {
    if (document.visibilityState === "visible") requestAnimationFrame(() => this.drain());
    else setTimeout(() => this.drain(), 100);
  }

  drain() {
    if (!this.wire) return;
    const until = performance.now() + (this.past ? PAST_BUDGET : LIVE_BUDGET);
    const { waiting } = this;
    let at = 0;
    while (at < waiting.length && (at % 16 || performance.now() < until)) {
      try {
        this.handle(waiting[at]);
      } catch (error) {
        console.error(error);  // what one message says must not stop those that follow
      }
      at += 1;
    }
    this.waiting = waiting.slice(at);
    if (this.waiting.length) this.schedule();
    if (!this.past) this.view.show();
  }

  handle({ method, params, id, refused, error }) {
    const { type, payload } = params ?? {};
    if (refused) this.refuse(refused, error);
    else if (method === "event") this.handleEvent(type, payload);
    else if (method === "request") this.handleRequest(type, payload, id);
    else if (method === "connection" && Object.hasOwn(CONNECTION, type)) CONNECTION[type](this, payload);
  }

  handleEvent(type, payload) {
    this.transcript.handle(type, payload);
    if (type === "TurnBegin") this.sent = null;
    if (type === "ApprovalResponse") this.settle(payload.request_id);
    if (this.past) return;
    const running = this.transcript.running;
    if (running !== this.running) {
      this.running = running;
      if (running) this.view.turn("begun");
    }
  }

  handleRequest(type, payload, id) {
    if (this.past || this.requests.has(id)) return;
    if (type !== "ApprovalRequest" && type !== "QuestionRequest") return;
    this.requests.set(id, { id, type, payload });
    const call = this.transcript.findCall(payload.tool_call_id);
    if (call) this.mark(call, id);
    this.view.asks(this.requests.get(id));
  }

  mark(call, asked) {
    call.asked = asked;
    this.transcript.changed(call, false);
  }

  settle(id) {
    const request = this.requests.get(id);
    if (!request) return;
    this.requests.delete(id);
    const call = this.transcript.findCall(request.payload.tool_call_id);
    if (call) {
      call.started = this.transcript.now();  // how long somebody thought about it is not its time
      this.mark(call, "");
    }
    this.view.asks(null);
  }

  /** Answer a request; it leaves the page when the server says that it is settled. Return whether it was sent. */
  answer(id, result) {
    return this.wire.answer(id, { request_id: id, ...result });
  }

  /** Begin a turn, or queue what was written while one is running. */
  submit(input) {
    if (this.running || this.sent) this.enqueue(input);
    else this.prompt(input);
  }

  enqueue(input) {
    this.queue.push(input);
    this.held = false;
    this.keepQueue();
    this.advance();
  }

  prompt(input) {
    if (this.refused) return void this.view.unsent(input);
    this.sent = input;
    this.cut = false;
    this.view.show();
    this.wire.call("prompt", { user_input: input }).catch((error) => {
      if (error.code !== 0) this.take({ refused: input, error });
      else if (this.wire) this.cut = true;  // the stream will tell what became of it
    });
  }

  /** Keep a message that a cut may have swallowed as a draft: nobody will be here to send it again. */
  keepUnsent() {
    if (this.cut && this.sent) storeDraft(this.id, [readInput(this.sent).text, storedDraft(this.id)].filter(Boolean).join("\n"));
  }

  // Of a prompt that began a turn, PromptFinished has told already.
  refuse(input, error) {
    if (this.sent !== input) return;
    this.sent = null;
    if (error.code === -32000) return void this.enqueue(input);
    this.transcript.note("error", error.message);
    this.view.unsent(input);
  }

  /** Send into the running turn. Where there is none any more it becomes a prompt. */
  async steer(input) {
    if (!this.running) return this.submit(input);
    try {
      await this.wire.call("steer", { user_input: input });
    } catch (error) {
      if (!this.wire) return;  // another session is open: it was sent, and its text is not for that one
      if (error.code === -32000) this.submit(input);
      else this.view.unsent(input);
    }
  }

  cancel() {
    this.held = this.queue.length > 0;
    this.wire.call("cancel").catch((error) => error.code === 0 && this.wire && this.view.noConnection());
  }

  keepQueue() {
    storeQueue(this.id, this.queue);
    this.view.queueChanged();
  }

  /** Send what was queued first, if nothing runs. */
  advance() {
    if (this.running || this.sent || this.held || this.past || !this.queue.length) return;
    const next = this.queue.shift();
    this.keepQueue();
    this.prompt(next);
  }

  close() {
    this.keepUnsent();
    const { wire } = this;
    this.wire = null;
    wire.close();
    this.waiting = [];
  }
}

const CONNECTION = {
  Attached(self, { mode }) {
    if (mode === "replayed") self.restart();
  },
  Current(self, { state }) {
    const wasPast = self.past;
    self.past = false;
    if (state === "idle") self.transcript.endTurn();
    else if (!self.transcript.running) self.transcript.depth = 1;
    self.running = state !== "idle";
    const lost = self.sent;
    self.sent = null;
    if (!self.seen && state === "idle") self.held = self.queue.length > 0;
    self.seen = true;
    self.view.ready(wasPast);
    if (lost && state === "idle" && !wasPast) self.prompt(lost);
    else if (lost && wasPast) self.view.unsent(lost);
    self.advance();
  },
  RequestSettled: (self, { request_id: id }) => self.settle(id),
  PromptFinished(self, outcome) {
    self.sent = null;
    self.running = false;
    const seconds = self.transcript.turnStarted && Date.now() / 1000 - self.transcript.turnStarted;
    self.transcript.endTurn();
    if (outcome.error) self.transcript.note("error", outcome.error.message ?? "");
    else if (outcome.status === "cancelled") self.transcript.note("info", "", "cancelled");
    else if (outcome.status === "max_steps_reached") self.transcript.note("warning", "", "maxSteps", { steps: outcome.steps });
    if (outcome.status !== "finished") self.held = self.queue.length > 0;
    self.view.turn("ended", seconds, outcome);
    self.advance();
  },
  SessionChanged: (self) => self.view.changedSession(),
  Refused: (self, payload) => self.view.connection("refused", payload),
};
