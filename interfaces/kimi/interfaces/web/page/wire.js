// One session's wire over a WebSocket: calls and their answers, and coming back after a cut with nothing missed.

const FIRST_WAIT = 300;
const LONGEST_WAIT = 4000;
const SILENCE = 10_000;
const PATIENCE = 5000;
const FINAL = new Set([4400, 4403, 4404, 4409, 4410, 4500, 4503]);
// By it the server knows that this page is back, and drops what the connection before may still hold.
const NAME = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The error of a call: `code` and `message` of the answer, or code 0 when the connection was cut before one came. */
export class CallError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/**
 * The connection of one session. `listener.message(message)` gets every message but answers, in order;
 * `listener.connection(state, code)` is told "connecting", "open", "lost" and "refused".
 */
export class Wire {
  constructor(id, listener) {
    this.id = id;
    this.listener = listener;
    this.position = null;
    this.socket = null;
    this.calls = new Map();
    this.count = 0;
    this.wait = FIRST_WAIT;
    this.closed = false;
    this.wake = () => document.visibilityState === "visible" && this.check(2000);
    this.online = () => this.hurry();
    document.addEventListener("visibilitychange", this.wake);
    window.addEventListener("online", this.online);
    this.pulse = setInterval(() => Date.now() - this.heard > SILENCE && this.check(PATIENCE), 2000);
    this.heard = 0;
    this.connect();
  }

  connect() {
    if (this.closed) return;
    this.listener.connection("connecting");
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const after = encodeURIComponent(this.position ?? "start");
    const query = `after=${after}&batch=1&client=${NAME}`;
    const socket = new WebSocket(`${scheme}//${location.host}/api/sessions/${this.id}/wire?${query}`);
    this.socket = socket;
    this.heard = Date.now();
    socket.onopen = () => this.listener.connection("open");
    socket.onmessage = ({ data }) => [JSON.parse(data)].flat().forEach((message) => this.read(message));
    socket.onclose = ({ code }) => socket === this.socket && this.lose(code);
  }

  read(message) {
    this.heard = Date.now();
    if (message.method) {
      if (message.position) this.position = message.position;
      else if (message.params?.type === "Current") this.position = message.params.payload.position;
      if (message.params?.type === "Attached") this.wait = FIRST_WAIT;
      this.listener.message(message);
      return;
    }
    const waiting = this.calls.get(message.id);
    if (!waiting) return;
    this.calls.delete(message.id);
    if (message.error) waiting.reject(new CallError(message.error.code, message.error.message));
    else waiting.resolve(message.result);
  }

  /** Call a method. Rejects with a CallError. */
  call(method, params = {}) {
    return new Promise((resolve, reject) => {
      if (this.socket?.readyState !== WebSocket.OPEN) return void reject(new CallError(0, "not connected"));
      const id = `page-${(this.count += 1)}`;
      this.calls.set(id, { resolve, reject });
      this.socket.send(JSON.stringify({ jsonrpc: "2.0", method, id, params }));
    });
  }

  /** Answer a request. Return whether it was sent. */
  answer(id, result) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify({ jsonrpc: "2.0", id, result }));
    return true;
  }

  /** Find out whether the connection lives: any answer says so. One that is dead is left within `patience` ms. */
  check(patience) {
    const { socket } = this;
    if (!socket) return this.hurry();
    if (socket.readyState !== WebSocket.OPEN) return Date.now() - this.heard > patience && this.lose(0);
    const asked = Date.now();
    this.call("ping").catch(() => {});
    setTimeout(() => {
      if (socket === this.socket && this.heard < asked) this.lose(0);
    }, patience);
    return undefined;
  }

  /** Connect now instead of after the pause. */
  hurry() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.connect();
  }

  lose(code) {
    this.drop();
    if (this.closed) return;
    if (FINAL.has(code)) {
      this.close();
      this.listener.connection("refused", code);
      return;
    }
    this.listener.connection("lost");
    this.timer = setTimeout(() => this.hurry(), this.wait * (0.75 + Math.random() / 2));
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  drop() {
    const { socket } = this;
    this.socket = null;
    if (socket) socket.onmessage = socket.onclose = null;
    socket?.close();
    for (const { reject } of this.calls.values()) reject(new CallError(0, "connection lost"));
    this.calls.clear();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    clearInterval(this.pulse);
    document.removeEventListener("visibilitychange", this.wake);
    window.removeEventListener("online", this.online);
    this.drop();
  }
}
