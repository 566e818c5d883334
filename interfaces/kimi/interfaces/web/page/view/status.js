// Mode, model, context and cost beside the message; what MCP servers and background tasks do.

import { getStatus, listTasks, setOptions, stopTask } from "../api.js";
import { formatCost, formatTokens } from "../model/format.js";
import { language, t } from "../texts.js";
import { openDialog, openMenu } from "./dialogs.js";
import { button, el, txt } from "./dom.js";

const MODES = ["default", "edits", "plan", "yolo", "afk"];

/** The state of a session beside its message. `info` is what the server said of itself. */
export class StatusLine {
  constructor(info, session, fail) {
    Object.assign(this, { info, session, fail, known: null });
    this.mode = button("", () => this.openModes(), { kind: "chip-button mode", "aria-haspopup": "menu" });
    this.model = button("", () => this.openModels(), { kind: "chip-button model", "aria-haspopup": "menu" });
    this.meter = el("span", { class: "meter", "aria-hidden": "true" });
    this.percent = el("span");
    this.context = el("button", { type: "button", class: "button chip-button context", on: { click: () => this.openUsage() } }, this.meter, this.percent);
    this.node = el("div", { class: "status" }, this.mode, this.model, this.context);
  }

  /** Ask the server what holds now. */
  async refresh() {
    const session = this.session();
    if (!session) return;
    try {
      const known = await getStatus(session.id);
      if (session !== this.session()) return;
      this.take(known);
    } catch (error) {
      if (error.code !== "unknown") this.fail(error, true);
    }
  }

  take(known) {
    this.known = known;
    const { status, tasks } = this.session().transcript;
    status.plan = known.modes?.plan ?? known.mode === "plan";
    if (known.mcp) status.mcp = known.mcp;
    if (known.max_context_tokens) {
      status.context = {
        usage: known.context_tokens / known.max_context_tokens, tokens: known.context_tokens, most: known.max_context_tokens,
      };
    }
    for (const task of known.tasks ?? []) tasks.set(task.id, task);
    this.onKnown?.(known);
    this.draw();
  }

  draw() {
    const session = this.session();
    this.node.hidden = !session || !this.known;
    if (this.node.hidden) return;
    const { status } = session.transcript;
    const mode = this.currentMode();
    setText(this.mode, t(`mode_${mode}`), `${t("mode")}: ${t(`hint_${mode}`)}`);
    this.mode.dataset.mode = mode;
    const effort = this.known.thinking ? (this.known.effort ?? "") : "";
    setText(this.model, [this.known.model ?? t("noModel"), effort].filter(Boolean).join(" · "), t("model"));
    const used = status.context;
    this.context.hidden = !used && !status.usage;
    if (used) {
      const percent = Math.round(used.usage * 100);
      this.meter.style.setProperty("--used", String(Math.min(1, used.usage)));
      this.meter.classList.toggle("full", used.usage > 0.85);
      const cost = status.usage?.session?.cost ?? this.known.usage?.cost;
      const about = t("contextUsed", { percent, tokens: formatTokens(used.tokens ?? 0), most: formatTokens(used.most ?? 0) });
      const text = cost ? `${percent}% · ${formatCost(cost, language())}` : `${percent}%`;
      if (this.percent.textContent !== text) this.percent.textContent = text;
      if (this.context.title !== about) this.context.title = about;
      this.context.setAttribute("aria-label", cost ? `${about} ${t("cost")}: ${formatCost(cost, language())}` : about);
    }
  }

  currentMode() {
    const { plan } = this.session().transcript.status;
    if (plan) return "plan";
    return this.known.mode && this.known.mode !== "plan" ? this.known.mode : "default";
  }

  async set(options) {
    try {
      this.take(await setOptions(this.session().id, options));
    } catch (error) {
      this.fail(error);
      this.refresh();
    }
  }

  openModes() {
    const now = this.currentMode();
    const modes = this.info().modes ?? MODES;
    openMenu(this.mode, modes.map((mode) => ({
      label: t(`mode_${mode}`), about: t(`hint_${mode}`), checked: mode === now, run: () => this.set({ mode }),
    })), t("mode"));
  }

  /** Change to the next mode. */
  nextMode() {
    const modes = this.info().modes ?? MODES;
    if (this.known) this.set({ mode: modes[(modes.indexOf(this.currentMode()) + 1) % modes.length] });
  }

  openModels() {
    const { models } = this.info();
    const entries = models.map(({ name, model }) => ({
      label: name, about: model === name ? "" : model, checked: name === this.known.model, run: () => this.set({ model: name }),
    }));
    const current = models.find(({ name }) => name === this.known.model);
    if (current?.thinking) {
      const levels = current.levels?.length ? current.levels : null;
      entries.push(null, { label: `${t("thinkingLevel")}: ${t("off")}`, checked: !this.known.thinking, run: () => this.set({ thinking: false }) });
      for (const level of levels ?? [""]) {
        entries.push({
          label: `${t("thinkingLevel")}: ${level || t("on")}`, checked: this.known.thinking && (!level || level === this.known.effort),
          run: () => this.set(level ? { thinking: true, effort: level } : { thinking: true }),
        });
      }
    }
    openMenu(this.model, entries, t("model"));
  }

  openUsage() {
    const { status } = this.session().transcript;
    const rows = [];
    if (status.context) {
      const { usage, tokens, most } = status.context;
      rows.push(el("p", {}, t("contextUsed", { percent: Math.round(usage * 100), tokens: formatTokens(tokens ?? 0), most: formatTokens(most ?? 0) })));
    }
    const total = status.usage?.session ?? this.known.usage;
    if (status.usage?.turn) rows.push(drawUsage(t("turnUsage"), status.usage.turn));
    if (total) rows.push(drawUsage(t("sessionUsage"), total));
    const dialog = openDialog(t("context"), rows, el("div", { class: "answers" }, button(t("compactNow"), () => {
      dialog.close();
      this.session().submit("/compact");
    })));
  }

  openMcp() {
    const servers = this.session()?.transcript.status.mcp?.servers ?? [];
    openDialog(t("mcp"), servers.length ? el("ul", { class: "rows" }, servers.map((server) => el("li", {},
      el("span", { class: `dot ${server.status}` }), el("strong", {}, txt(server.name)), el("span", { class: "faint" }, t(`mcp_${server.status}`)),
      el("details", {}, el("summary", {}, t("tools", { count: server.tools.length })), el("p", { class: "faint" }, txt(server.tools.join(", ")))))))
      : el("p", { class: "faint" }, t("noMcp")));
  }

  async openTasks() {
    const session = this.session();
    const list = el("ul", { class: "rows" });
    openDialog(t("tasks"), list);
    try {
      const tasks = await listTasks(session.id);
      list.replaceChildren(...tasks.map((task) => this.drawTask(session, task)));
      if (!tasks.length) list.append(el("li", { class: "faint" }, t("noTasks")));
    } catch (error) {
      this.fail(error);
    }
  }

  drawTask(session, task) {
    const stop = task.active && button(t("stopTask"), async () => {
      stop.disabled = true;
      await stopTask(session.id, task.id).catch(this.fail);
      this.refresh();
    }, { kind: "quiet" });
    return el("li", {}, el("span", { class: `dot ${task.active ? "running" : task.status}` }), el("strong", {}, txt(task.description || task.id)),
      el("span", { class: "faint" }, txt(task.status)), stop || null,
      task.output ? el("details", {}, el("summary", {}, t("output")), el("pre", { class: "whole", tabindex: "0" }, txt(task.output))) : null);
  }
}

function setText(node, text, about) {
  if (node.textContent !== text) node.textContent = text;
  if (node.title !== about) node.title = about;
  node.setAttribute("aria-label", `${about}: ${text}`);
}

function drawUsage(title, total) {
  const row = (name, value) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value));
  const read = total.input_other + total.input_cache_read + total.input_cache_creation;
  return el("table", { class: "usage" }, el("caption", {}, title), el("tbody", {},
    row(t("tokensIn"), formatTokens(read)), row(t("tokensCached"), formatTokens(total.input_cache_read)), row(t("tokensOut"), formatTokens(total.output)),
    total.cost ? row(t("cost"), formatCost(total.cost, language())) : null));
}
