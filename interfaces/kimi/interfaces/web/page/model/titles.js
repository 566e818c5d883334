// What a tool call is about, in one line, also while its arguments still stream.

import { oneLine } from "./visible.js";

const KEPT = 4000;
const KEYS = {
  Agent: "description", FetchURL: "url", Glob: "pattern", Grep: "pattern", ReadFile: "path", ReadMediaFile: "path",
  SearchWeb: "query", SendDMail: "message", SetTodoList: "", Shell: "command", StrReplaceFile: "path",
  TaskOutput: "task_id", TaskStop: "task_id", Think: "thought", WriteFile: "path", AskUserQuestion: "question",
  TaskList: "", EnterPlanMode: "", ExitPlanMode: "",
};
const COMMON = ["command", "path", "file_path", "pattern", "query", "url", "description", "prompt", "question", "name"];

/** Return the title of a call of `tool`: the argument that matters, or "". `args` may be an incomplete JSON text. */
export function callTitle(tool, args) {
  const key = Object.hasOwn(KEYS, tool) ? [KEYS[tool]] : COMMON;
  for (const name of key) {
    const value = name && findArgument(args.slice(0, KEPT), name);
    if (value) return oneLine(value, 240);
  }
  return "";
}

function findArgument(args, name) {
  const found = new RegExp(`"${name}"\\s{0,8}:\\s{0,8}(?:"((?:[^"\\\\]|\\\\.)*)|(\\d+))`, "s").exec(args);
  if (!found) return "";
  if (found[2]) return found[2];
  try {
    return JSON.parse(`"${found[1].replace(/[\u0000-\u001f]/g, " ")}"`);
  } catch {
    return found[1];  // cut within an escape
  }
}

/** Return the arguments as text for people: indented JSON if it is complete. */
export function formatArguments(args) {
  try {
    return JSON.stringify(JSON.parse(args || "{}"), null, 2);
  } catch {
    return args;
  }
}
