// The open session: its header, what was said and done, what is asked, the todo list, and the message below.

import { formatSeconds, lastPart } from "../model/format.js";
import { notify, showTitle } from "../notify.js";
import { Session } from "../session.js";
import { t } from "../texts.js";
import { Composer } from "./composer.js";
import { button, el, setRoot, txt } from "./dom.js";
import { Flow } from "./flow.js";
import { drawItem, estimateHeight } from "./items.js";
import { Requests } from "./requests.js";
import { StatusLine } from "./status.js";
import { countDone, drawTodo } from "./tool_view.js";

const LONG_TURN = 10;

/** The main part of the page. `fail(error, quiet)` tells of an error, `announce(text)` is read aloud. */
export class Conversation {
  constructor({ info, fail, complain, announce, openSessions, openSettings, changed }) {
    Object.assign(this, { info, fail, announce, changed, session: null, title: "", openSessions });
    const current = () => this.session;
    this.status = new StatusLine(info, current, fail);
    this.status.onKnown = (known) => this.showKnown(known);
    this.composer = new Composer(current, complain);
    this.composer.tools.prepend(button(t("openSessions"), openSessions, { kind: "quiet phone-only", picture: "menu" }));
    this.composer.tools.append(this.status.node);
    this.heading = el("h1", { class: "cut", tabindex: "-1", dir: "auto" });
    this.place = el("span", { class: "faint cut path" });
    this.mcp = button(t("mcp"), () => this.status.openMcp(), { kind: "quiet", picture: "server" });
    this.tasks = button(t("tasks"), () => this.status.openTasks(), { kind: "quiet", picture: "clock" });
    this.header = el("header", { class: "top" },
      button(t("openSessions"), openSessions, { kind: "quiet", picture: "menu", id: "toggle-sessions" }),
      el("div", { class: "heading" }, this.heading, this.place), el("span", { class: "space" }), this.mcp, this.tasks,
      button(t("settings"), openSettings, { kind: "quiet", picture: "gear" }));
    this.host = el("div", { class: "items" });
    this.empty = el("div", { class: "welcome" });
    this.activity = el("p", { class: "activity", hidden: true });
    this.scroller = el("main", { class: "scroller", id: "conversation", tabindex: "-1", "aria-label": t("conversation") },
      this.empty, this.host, this.activity);
    this.flow = new Flow(this.scroller, this.host, drawItem, estimateHeight);
    this.down = button(t("newBelow"), () => this.flow.toEnd(), { kind: "round down", picture: "down", hidden: true });
    this.flow.onAway = (away) => (this.down.hidden = !away);
    this.banner = el("div", { class: "banner", role: "status", hidden: true });
    this.asked = el("div", { class: "asked-place", hidden: true });
    this.requests = new Requests(this.asked, (id, result) => Boolean(this.session?.answer(id, result)));
    this.todo = el("details", { class: "todo-strip", hidden: true }, el("summary"), el("div"));
    this.dock = el("div", { class: "dock" }, this.down, this.banner, this.todo, this.asked, this.composer.node);
    this.node = el("div", { class: "conversation" }, this.header, this.scroller, this.dock);
    this.showNothing();
  }

  /** Open a session; the one that was open goes on without this page. */
  open(id, title) {
    if (this.session?.id === id) return;
    this.session?.close();
    this.title = title;
    this.begun = performance.now();
    this.status.known = null;
    this.node.classList.remove("nothing");
    this.node.dataset.ready = "false";
    this.banner.hidden = this.todo.hidden = true;
    this.requests.show([]);
    this.place.replaceChildren();
    this.session = null;
    this.session = new Session(id, this);
    this.heading.replaceChildren(txt(title || t("untitled")));
    this.composer.open();
    this.status.draw();
  }

  showNothing() {
    this.session?.close();
    this.session = null;
    this.title = "";
    this.node.classList.add("nothing");
    this.heading.textContent = "";
    this.place.textContent = "";
    this.requests.show([]);
    this.todo.hidden = this.banner.hidden = this.activity.hidden = true;
    this.mcp.hidden = this.tasks.hidden = true;
    this.flow.reset();
    this.status.draw();
    showTitle("", "");
  }

  /** Show what the page offers where there is no session: nodes made by `main`. */
  showWelcome(...nodes) {
    this.empty.replaceChildren(...nodes);
    this.empty.hidden = false;
  }

  // --- what a session tells ---

  reset() {
    this.flow.reset();
    this.empty.hidden = true;
  }

  item(item, isNew) {
    if (isNew) this.flow.add(item);
    else this.flow.change(item);
  }

  ready(wasPast) {
    if (wasPast) {
      this.flow.ready();
      performance.measure("kimi:opened", { start: this.begun });
    }
    this.empty.hidden = this.session.transcript.items.length > 0;
    if (!this.empty.hidden) this.showWelcome(el("p", { class: "lead" }, t("emptySession")), el("p", { class: "faint" }, t("emptyHint")));
    this.banner.hidden = true;
    this.requests.reopen();
    this.requestsChanged();
    this.show();
    this.status.refresh();
    this.node.dataset.ready = "true";
  }

  connection(state, payload) {
    const texts = { connecting: "", open: "", lost: t("lost"), refused: payload?.message ?? t("refused") };
    if (state === "refused" && payload?.message === undefined && this.banner.dataset.state === "refused") return;
    if (state === "refused" && payload?.code === 4410) texts.refused = t("refused_deleted");
    this.node.dataset.connection = state;
    if (!texts[state]) return;
    this.banner.dataset.state = state;
    this.banner.hidden = false;
    this.banner.replaceChildren(txt(texts[state]));
    if (state === "refused") {
      const { id } = this.session;
      this.banner.append(button(t("reload"), () => (this.showNothing(), this.open(id, this.title)), { kind: "quiet" }));
    }
  }

  requestsChanged() {
    const { requests, transcript } = this.session;
    this.requests.show([...requests.values()], ({ payload }) => transcript.findCall(payload.tool_call_id));
    if (this.flow.follow) this.flow.toEnd();
  }

  asks(request) {
    this.requestsChanged();
    this.showMark();
    if (!request) return;
    const what = request.payload.description ?? request.payload.questions?.[0]?.question ?? "";
    this.announce(t("announceAsked", { what }));
    notify(this.session.id, t("notifyAsked"), [this.title, what].filter(Boolean).join("\n"));
  }

  turn(what, seconds = 0) {
    if (what === "ended") {
      this.announce(t("announceDone"));
      if (seconds >= LONG_TURN) notify(this.session.id, t("notifyDone"), [this.title, formatSeconds(seconds)].filter(Boolean).join(" · "));
      this.status.refresh();
    }
    this.empty.hidden = true;
    this.changed();
    this.show();
  }

  changedSession() {
    this.status.refresh();
    this.changed();
  }

  queueChanged() {
    this.composer.drawQueue();
  }

  unsent(input) {
    this.composer.put(input);
    this.fail(new Error(t("unsent")));
  }

  noConnection() {
    this.fail(new Error(t("notSent")));
  }

  // --- what is shown beside the items ---

  /** Show what has changed; called after each batch of messages. */
  show() {
    if (!this.session) return;
    this.flow.flush();
    this.composer.refresh();
    this.status.draw();
    this.drawTodo();
    this.drawActivity();
    const { status, tasks } = this.session.transcript;
    this.mcp.hidden = !status.mcp?.servers.length;
    this.mcp.classList.toggle("problem", Boolean(status.mcp?.servers.some(({ status: one }) => one === "failed" || one === "unauthorized")));
    this.tasks.hidden = !tasks.size;
    this.showMark();
  }

  showMark() {
    const session = this.session;
    this.node.dataset.state = session?.running || session?.sent ? "running" : "idle";
    const mark = session?.requests.size ? "?" : session?.running ? "•" : "";
    if (mark === this.mark && this.title === this.marked) return;
    Object.assign(this, { mark, marked: this.title });
    showTitle(this.title, mark);
  }

  drawActivity() {
    const { running, sent, requests, transcript } = this.session;
    this.activity.hidden = !(running || sent) || requests.size > 0;
    const text = transcript.status.activity === "mcp" ? t("waitMcp") : t("working");
    if (this.activity.textContent !== text) this.activity.replaceChildren(el("span", { class: "dot running" }), text);
  }

  drawTodo() {
    const items = this.session.transcript.status.todos ?? [];
    const open = items.some((one) => one.status !== "done");
    this.todo.hidden = !open;
    if (!open || this.drawnTodo === items) return;
    this.drawnTodo = items;
    const now = items.find((one) => one.status === "in_progress");
    this.todo.children[0].replaceChildren(el("span", {}, t("todo")), el("span", { class: "faint" }, countDone(items)),
      el("span", { class: "cut" }, now ? txt(now.title) : ""));
    this.todo.children[1].replaceChildren(drawTodo(items));
  }

  showTitle(title) {
    if (!title || title === this.title) return;
    this.title = title;
    this.heading.replaceChildren(txt(title));
    this.showMark();
  }

  showKnown(known) {
    this.showTitle(known.title);
    this.place.replaceChildren(txt(lastPart(known.work_dir)));
    this.place.title = known.work_dir;
    setRoot(known.work_dir);
    this.show();
  }
}
