// The list of sessions: search, open, rename, fork, archive, delete.

import { changeSession, deleteSession, forkSession, listSessions } from "../api.js";
import { formatAgo, lastPart } from "../model/format.js";
import { language, t } from "../texts.js";
import { askText, confirmDanger, openMenu } from "./dialogs.js";
import { button, el, txt } from "./dom.js";

const SHOWN = 100;
const VISIBLE_PAUSE = 5000;
const HIDDEN_PAUSE = 20_000;

/** The list. `open(id)` opens a session, `create()` asks for a directory, `fail(error)` tells of an error; `chosen()`,
 * `removed(id)` and `listed(sessions)` are told what has happened. */
export class Sessions {
  constructor({ open, create, fail, removed, listed, chosen }) {
    Object.assign(this, { open, fail, removed, listed, chosen, sessions: [], current: "", archived: false, limit: SHOWN });
    this.search = el("input", {
      class: "field search", type: "search", placeholder: t("searchSessions"), "aria-label": t("searchSessions"), id: "search",
      on: { input: () => this.refreshSoon(200), keydown: (event) => this.searchKey(event) },
    });
    this.list = el("ul", { class: "session-list" });
    this.toggle = button(t("showArchived"), () => this.showArchived(!this.archived), { kind: "quiet", "aria-pressed": "false" });
    this.node = el("nav", { class: "sessions", "aria-label": t("sessions"), id: "sessions" },
      el("div", { class: "sessions-head" }, el("h2", {}, t("sessions")), button(t("newSession"), create, { kind: "quiet", picture: "plus", id: "new-session" })),
      this.search, this.list, el("div", { class: "sessions-foot" }, this.toggle, el("span", { class: "space" }),
        button(t("newSession"), create, { kind: "primary phone-only" })));
    this.list.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.refreshSoon(0));
    this.refreshSoon(0);
  }

  refreshSoon(pause) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), pause);
  }

  async refresh() {
    const query = this.search.value.trim();
    const { archived } = this;
    try {
      const found = await listSessions(query, archived);
      if (query !== this.search.value.trim() || archived !== this.archived) return;
      this.sessions = found;
      this.draw();
      this.listed(query || archived ? null : found);
    } catch (error) {
      this.fail(error, true);
    }
    this.refreshSoon(document.visibilityState === "visible" ? VISIBLE_PAUSE : HIDDEN_PAUSE);
  }

  showArchived(archived) {
    this.archived = archived;
    this.toggle.textContent = t(archived ? "showCurrent" : "showArchived");
    this.toggle.setAttribute("aria-pressed", String(archived));
    this.refreshSoon(0);
  }

  select(id) {
    this.current = id;
    this.draw();
  }

  searchKey(event) {
    if (event.key === "Enter" && this.sessions.length) this.open(this.sessions[0].id);
    if (event.key === "Escape" && this.search.value) event.stopPropagation();  // it clears the field, and stops no turn
  }

  /** Open the session after (1) or before (-1) the current one. */
  step(by) {
    const at = this.sessions.findIndex(({ id }) => id === this.current);
    const next = this.sessions[at + by];
    if (next) this.open(next.id);
  }

  draw() {
    const shown = this.sessions.slice(0, this.limit);
    const key = JSON.stringify([shown.map(({ id, title, state, updated_at: at }) => [id, title, state, formatAgo(at, Date.now() / 1000, language())]),
      this.current, this.archived]);
    if (key === this.drawn) return;
    this.drawn = key;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const rows = shown.map((session) => this.drawRow(session));
    if (!rows.length) rows.push(el("li", { class: "faint empty" }, t(this.search.value ? "nothingFound" : "noSessions")));
    if (this.sessions.length > this.limit) {
      rows.push(el("li", {}, button("…", () => ((this.limit += SHOWN), this.draw()), { kind: "quiet", "aria-label": t("earlier", { count: this.sessions.length - this.limit }) })));
    }
    this.list.replaceChildren(...rows);
    if (focused) this.list.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  drawRow(session) {
    const title = session.title || t("untitled");
    const state = t(`state_${session.state}`);
    const current = session.id === this.current;
    const open = el("a", {
      class: "session-link", href: `#/s/${session.id}`, "aria-current": current ? "page" : null, "data-key": session.id,
      on: { click: this.chosen },
    }, el("span", { class: `dot ${session.state}`, role: "img", "aria-label": state || null, title: state || null }),
    el("span", { class: "session-text" }, el("span", { class: "session-title cut" }, txt(title)),
      el("span", { class: "faint cut" }, txt(lastPart(session.work_dir)), " · ", formatAgo(session.updated_at, Date.now() / 1000, language()))));
    const more = button(t("actions", { title }), () => this.openActions(more, session), {
      kind: "quiet small", picture: "more", "aria-haspopup": "menu", "data-key": `${session.id} more`,
    });
    return el("li", { class: current ? "session current" : "session" }, open, more);
  }

  key(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...this.list.querySelectorAll(".session-link")];
    const at = links.indexOf(document.activeElement);
    if (at < 0) return;
    event.preventDefault();
    links[at + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
  }

  openActions(anchor, session) {
    const title = session.title || t("untitled");
    const act = (run) => async () => {
      try {
        await run();
      } catch (error) {
        this.fail(error);
      }
      this.refreshSoon(0);
    };
    openMenu(anchor, [
      { label: t("rename"), run: act(async () => {
        const given = await askText(t("newTitle"), session.title ?? "");
        if (given) await changeSession(session.id, { title: given });
      }) },
      { label: t("fork"), run: act(async () => this.open(await forkSession(session.id))) },
      { label: t(session.archived ? "restore" : "archive"), run: act(() => changeSession(session.id, { archived: !session.archived })) },
      null,
      { label: t("delete"), kind: "danger", run: act(async () => {
        if (!(await confirmDanger(t("deleteAsk", { title }), t("delete")))) return;
        await deleteSession(session.id);
        this.removed(session.id);
      }) },
    ], t("actions", { title }));
  }
}
