// What is asked: one card at a time above the message, shown whole, with the answers in reach of a thumb.

import { formatArguments } from "../model/titles.js";
import { hasText, t } from "../texts.js";
import { drawDiff } from "./diff_view.js";
import { button, el, txt } from "./dom.js";
import { drawMarkdown, drawTokens } from "./markdown_view.js";
import { drawTodo, toolName } from "./tool_view.js";

const GUARD = 450;

/** The place for what is asked. `answer(id, result)` sends an answer and returns whether it could. */
export class Requests {
  constructor(host, answer) {
    Object.assign(this, { host, answer, shown: null, at: 0, answered: [] });
    host.addEventListener("scroll", () => this.measure(), true);
  }

  /** Show the first of the waiting requests. `call` is the tool call that it is about, if known. */
  show(requests, findCall) {
    const [first] = requests;
    this.host.hidden = !first;
    if (!first) {
      this.shown = null;
      this.host.replaceChildren();
      return;
    }
    if (this.shown !== first.id) {
      this.shown = first.id;
      this.at = performance.now();
      this.card = first.type === "QuestionRequest" ? this.drawQuestion(first) : this.drawApproval(first, findCall(first));
      this.more = el("p", { class: "faint more-waiting" });
      this.host.replaceChildren(this.card, this.more);
      requestAnimationFrame(() => this.measure());
    }
    this.more.textContent = requests.length > 1 ? t("approvalOf", { count: requests.length - 1 }) : "";
  }

  /** Press the answer of this name, if an approval is shown. Return whether there was one. */
  press(name) {
    const pressed = this.card?.isConnected && this.card.querySelector(`[data-answer="${name}"]`);
    if (pressed) pressed.click();
    return Boolean(pressed);
  }

  // A card that has just replaced another gets no click that was meant for that one.
  send(id, result) {
    if (performance.now() - this.at < GUARD || this.shown !== id) return;
    if (!this.answer(id, result)) {
      this.more.textContent = t("notSent");
      return;
    }
    this.answered = [...this.card.querySelectorAll("button:enabled")];
    for (const control of this.answered) control.disabled = true;
  }

  /** Let what is shown be answered again: after a cut, an answer to what still waits has not arrived. */
  reopen() {
    for (const control of this.answered) control.disabled = false;
    this.answered = [];
  }

  measure() {
    const box = this.card?.querySelector(".asked-what");
    if (box) this.card.classList.toggle("cut-off", box.scrollHeight - box.scrollTop - box.clientHeight > 8);
  }

  drawApproval({ id, payload }, call) {
    const answers = el("div", { class: "answers" },
      button(t("reject"), () => this.drawRejection(id, answers), { kind: "reject", "data-answer": "reject" }),
      button(t("approveSession"), () => this.send(id, { response: "approve_for_session" }), {
        kind: "session", "data-answer": "session", title: t("sessionScope", { action: payload.action }),
      }),
      button(t("approve"), () => this.send(id, { response: "approve" }), { kind: "primary", "data-answer": "approve" }));
    const key = `ask_${payload.action.replaceAll(" ", "_")}`;
    const title = el("h2", { id: "asked" }, hasText(key) ? t(key) : t("ask_other"));
    return el("section", { class: "asked card", role: "alertdialog", "aria-labelledby": "asked", "aria-describedby": "asked-what" },
      el("header", {}, title, drawSource(payload)),
      el("div", { class: "asked-what", id: "asked-what", tabindex: "0" }, drawWhat(payload, call)),
      el("p", { class: "scroll-hint", "aria-hidden": "true" }, t("scrollForMore")),
      el("p", { class: "faint scope" }, txt(t("sessionScope", { action: payload.action }))), answers);
  }

  drawRejection(id, answers) {
    const words = el("textarea", { rows: "2", class: "field", "aria-label": t("rejectWords"), placeholder: t("rejectWords") });
    const reject = () => this.send(id, { response: "reject", feedback: words.value.trim() });
    const former = [...answers.childNodes];
    const back = () => {
      answers.replaceChildren(...former);
      former[0].focus();
    };
    words.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) event.preventDefault(), reject();
      if (event.key === "Escape") event.stopPropagation(), back();
    });
    answers.replaceChildren(words, el("div", { class: "answers" }, button(t("back"), back, { kind: "quiet" }),
      button(t("reject"), reject, { kind: "danger" })));
    words.focus();
  }

  drawQuestion({ id, payload }) {
    const fields = payload.questions.map((question, at) => drawOneQuestion(question, `${id}-${at}`));
    const send = button(t("answer"), () => {
      const answers = {};
      payload.questions.forEach((question, at) => {
        const value = fields[at].read();
        if (value) answers[question.question] = value;
      });
      this.send(id, { answers });
    }, { kind: "primary" });
    const check = () => (send.disabled = !fields.every((field) => field.read()));
    const form = el("section", { class: "asked question card", role: "dialog", "aria-label": t("question"), on: { input: check } },
      el("div", { class: "asked-what" }, fields.map((field) => field.node)),
      el("p", { class: "scroll-hint", "aria-hidden": "true" }, t("scrollForMore")),
      el("div", { class: "answers" }, button(t("dismiss"), () => this.send(id, { answers: {} }), { kind: "quiet" }), send));
    check();
    return form;
  }
}

function drawSource(payload) {
  if (payload.subagent_type) return el("span", { class: "faint" }, txt(t("by", { agent: payload.subagent_type })));
  return payload.source_kind === "background_agent" ? el("span", { class: "faint" }, t("background")) : null;
}

function drawWhat(payload, call) {
  const blocks = (payload.display ?? []).map(drawBlock).filter(Boolean);
  const found = saysNoMore(payload) ? [] : [el("p", {}, el("strong", {}, txt(toolName(payload.sender))), " ", txt(payload.description))];
  found.push(...blocks);
  if (!blocks.length && call) found.push(el("pre", { class: "whole" }, el("code", {}, drawTokens(formatArguments(call.args), "json"))));
  return found;
}

// Whether all that the description says is what the only block shows.
function saysNoMore({ description, display }) {
  const shown = display?.length === 1 ? (display[0].command ?? display[0].path) : undefined;
  return shown !== undefined && /^(?:Run|Run background|Write|Edit) (?:command|file) `$/.test(description.slice(0, -shown.length - 1))
    && description.endsWith(`${shown}\``);
}

function drawBlock(block) {
  switch (block.type) {
    case "shell":
      return el("pre", { class: "whole command" }, el("code", {}, drawTokens(block.command, "shell")));
    case "diff":
      return drawDiff(block, true);
    case "todo":
      return drawTodo(block.items);
    case "brief":
      return el("p", {}, txt(block.text));
    case "background_task":
      return el("p", {}, txt(`${block.task_id} · ${block.description}`));
    default:
      return el("pre", { class: "whole" }, el("code", {}, drawTokens(JSON.stringify(block.data ?? block, null, 2), "json")));
  }
}

function drawOneQuestion(question, name) {
  const kind = question.multi_select ? "checkbox" : "radio";
  const other = el("input", { class: "field", type: "text", placeholder: t("otherHint"), "aria-label": question.other_label || t("otherAnswer") });
  const otherChoice = el("input", { type: kind, name, value: "" });
  other.addEventListener("input", () => (otherChoice.checked = other.value.trim() !== "" || otherChoice.checked));
  const choices = question.options.map((option) => el("label", { class: "choice" }, el("input", { type: kind, name, value: option.label }),
    el("span", {}, el("span", { class: "choice-label" }, txt(option.label)), option.description ? el("span", { class: "faint" }, txt(option.description)) : null)));
  const node = el("fieldset", {}, el("legend", {}, question.header ? el("span", { class: "chip" }, txt(question.header)) : null,
    txt(question.question), question.multi_select ? el("span", { class: "faint" }, ` (${t("chooseSeveral")})`) : null),
  question.body ? el("div", { class: "md" }, drawMarkdown(question.body)) : null, choices,
  el("label", { class: "choice" }, otherChoice, el("span", {}, el("span", { class: "choice-label" }, txt(question.other_label || t("otherAnswer"))),
    question.other_description ? el("span", { class: "faint" }, txt(question.other_description)) : null)), other);
  return {
    node,
    read: () => [...node.querySelectorAll(`input[name="${CSS.escape(name)}"]:checked`)]
      .map((input) => (input === otherChoice ? other.value.trim() : input.value)).filter(Boolean).join(", "),
  };
}
