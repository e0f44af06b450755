/** The connection to the server: JSON requests, and server-sent events that come back by themselves. */

/** @typedef {{what: string, where?: string, hint?: string}} Fault */

/** Why there is no answer; `status` is that of HTTP, 0 where the server has ended the events itself: then the next request says more. */
export class Refusal extends Error {
  /** @param {number} status @param {{error?: Fault, mode?: string, errors?: Fault[]}} body */
  constructor(status, body) {
    const first = body.error ?? { what: "The server gave no reason" };
    super(first.what);
    this.status = status;
    this.mode = body.mode ?? "token";
    this.faults = body.errors?.length ? body.errors : [first];
  }
}

/** A fault in a sentence or two. @param {Fault} fault */
export const sentence = (fault) => `${fault.where ? `${fault.where}: ` : ""}${fault.what}${fault.hint ? ` (${fault.hint})` : ""}`;

/** Sends requests with the viewer's token, which is kept for as long as the tab is open. */
export class Server {
  static #KEY = "covey-token";

  get signedIn() {
    return sessionStorage.getItem(Server.#KEY) !== null;
  }

  /** @param {string} token */
  signIn(token) {
    sessionStorage.setItem(Server.#KEY, token);
  }

  signOut() {
    sessionStorage.removeItem(Server.#KEY);
  }

  /** @param {string} path @param {RequestInit} [options] @returns {Promise<Response>} */
  async ask(path, options = {}) {
    const token = sessionStorage.getItem(Server.#KEY);
    const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const answer = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options, headers });
    if (!answer.ok) throw await refusal(answer);
    return answer;
  }

  /** @param {string} path @param {RequestInit} [options] @returns {Promise<any>} */
  async json(path, options = {}) {
    return (await this.ask(path, options)).json();
  }
}

/** @param {Response} answer @returns {Promise<Refusal>} */
async function refusal(answer) {
  const plain = { error: { what: `The server answered ${answer.status} ${answer.statusText}`.trim() } };
  try {
    return new Refusal(answer.status, await answer.json());
  } catch {
    return new Refusal(answer.status, plain);
  }
}

/** The events of a text/event-stream, as they arrive. A line may come in pieces.
 * @param {AsyncIterable<Uint8Array> | ReadableStream} body @returns {AsyncGenerator<{event: string, data: string}>} */
export async function* eventsOf(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "", event = "message", data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    const lines = rest.split(/\r\n|\n/u);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /u, ""));
      else if (line === "") {
        if (data.length) yield { event, data: data.join("\n") };
        event = "message";
        data = [];
      } else yield { event: "beat", data: "" };
    }
  }
}

/** Seconds to wait before the n-th try in a row: 1, 2, 4 … 30, each up to a quarter less, so that pages do not come at once.
 * @param {number} failures @param {number} chance from 0 to 1 @returns {number} */
export const backOff = (failures, chance = Math.random()) => Math.min(30, 2 ** (failures - 1)) * (1 - chance / 4);

/** Seconds without a word after which a connection is given up; the first word of a large cluster takes longer. */
const SILENCE = 35, FIRST = 120;

/** Follows the events for as long as the page lives. */
export class Follower {
  #server;
  #on;
  #stop = new AbortController();
  #wake = () => {};
  #again = false;
  namespace = "";

  /** @param {Server} server
   * @param {{snapshot: (state: any) => void, change: (patch: any) => void, up: () => void,
   *          down: (seconds: number, why: string) => void, signIn: (refusal: Refusal) => Promise<void>}} on */
  constructor(server, on) {
    this.#server = server;
    this.#on = on;
  }

  /** Try again now, or ask anew for another namespace. */
  again() {
    this.#again = true;
    this.#stop.abort();
    this.#wake();
  }

  async run() {
    let failures = 0;
    for (;;) {
      this.#again = false;
      this.#stop = new AbortController();
      let why = "The connection has ended";
      try {
        await this.#read(() => {
          failures = 0;
        });
      } catch (error) {
        this.#stop.abort();
        if (this.#again) continue;
        if (error instanceof Refusal && error.status === 401) {
          await this.#on.signIn(error);
          continue;
        }
        why = error instanceof Refusal ? error.faults.map(sentence).join(" ") : "The server does not answer";
      }
      failures += 1;
      const seconds = backOff(failures);
      this.#on.down(seconds, why);
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, seconds * 1000);
      });
    }
  }

  async #read(arrived) {
    const query = this.namespace ? `?namespace=${encodeURIComponent(this.namespace)}` : "";
    const stop = this.#stop;
    let silent = setTimeout(() => stop.abort(), FIRST * 1000);
    try {
      const answer = await this.#server.ask(`api/events${query}`, { signal: stop.signal });
      for await (const { event, data } of eventsOf(answer.body)) {
        clearTimeout(silent);
        silent = setTimeout(() => stop.abort(), SILENCE * 1000);
        arrived();
        if (event === "snapshot") {
          this.#on.snapshot(JSON.parse(data));
          this.#on.up();
        } else if (event === "change") this.#on.change(JSON.parse(data));
        else if (event === "end") throw new Refusal(0, JSON.parse(data));
      }
    } finally {
      clearTimeout(silent);
    }
  }
}
