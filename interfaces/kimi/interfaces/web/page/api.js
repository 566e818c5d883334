// The server's JSON endpoints. Errors are sentences for people.

/** An answer that is not one of success. `code` as the server names it, "offline" when it cannot be reached. */
export class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

async function request(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method, credentials: "same-origin", cache: "no-store",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ApiError("offline", "");
  }
  if (answer.status === 204) return null;
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new ApiError(value.error?.code ?? "failed", value.error?.message ?? `${answer.status}`);
  return value;
}

const at = (id, rest = "") => `/api/sessions/${encodeURIComponent(id)}${rest}`;

export const getInfo = () => request("GET", "/api/info");
export const listDirectories = (path) =>
  request("GET", `/api/directories${path ? `?path=${encodeURIComponent(path)}` : ""}`);
export const listSessions = (query, archived) =>
  request("GET", `/api/sessions?query=${encodeURIComponent(query)}&archived=${archived}`).then((value) => value.sessions);
export const createSession = (workDir) => request("POST", "/api/sessions", { work_dir: workDir }).then((value) => value.id);
export const forkSession = (id) => request("POST", at(id, "/fork"), {}).then((value) => value.id);
export const changeSession = (id, changes) => request("PATCH", at(id), changes);
export const deleteSession = (id) => request("DELETE", at(id));
export const findFiles = (id, query) =>
  request("GET", at(id, `/files?query=${encodeURIComponent(query)}`)).then((value) => value.files);
export const getStatus = (id) => request("GET", at(id, "/status"));
export const setOptions = (id, options) => request("PATCH", at(id, "/options"), options);
export const listTasks = (id) => request("GET", at(id, "/tasks")).then((value) => value.tasks);
export const stopTask = (id, task) => request("POST", at(id, `/tasks/${encodeURIComponent(task)}/stop`), {});
