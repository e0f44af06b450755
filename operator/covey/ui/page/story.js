/** A gang's story: a list of what happened, over it a drawn time axis with the life of each replica. */

import { h, reconcile } from "./dom.js";
import { axis } from "./story-axis.js";
import { Refusal, sentence } from "./stream.js";
import { clock, many, span, spaced } from "./words.js";

const PAGE = 30;

export class StoryPart {
  #server;
  #gang = null;
  #story = null;
  #wish = 0;
  #timer = null;
  #most = PAGE;

  /** @param {import("./stream.js").Server} server */
  constructor(server) {
    this.#server = server;
    this.picture = h("div", { class: "axis" });
    this.words = h("p", { class: "dim", role: "status" });
    this.list = h("ol", { class: "events", reversed: "", tabindex: "0", "aria-label": "Events, the newest first" });
    this.element = h("section", { class: "story", "aria-labelledby": "story-title" }, h("h3", { id: "story-title" }, "Story"), this.picture, this.words, this.list);
    new ResizeObserver(() => this.#draw()).observe(this.picture);
  }

  /** Show a gang's story; asked for anew, soon, whenever the gang has changed.
   * @param {string | null} gang @param {string} _signature */
  show(gang, _signature) {
    const other = gang !== this.#gang;
    this.#gang = gang;
    if (other) {
      this.#story = null;
      this.#most = PAGE;
      this.picture.replaceChildren();
      this.list.replaceChildren();
      this.words.textContent = gang === null ? "" : "Reading the story";
    }
    clearTimeout(this.#timer);
    if (gang !== null) this.#timer = setTimeout(() => this.#read(), other ? 0 : 700);
  }

  async #read() {
    this.#wish += 1;
    const wish = this.#wish, gang = this.#gang;
    const [namespace, name] = gang.split("/").map(encodeURIComponent);
    try {
      const story = await this.#server.json(`api/gangs/${namespace}/${name}/story`);
      if (wish !== this.#wish || gang !== this.#gang) return;
      this.#story = story;
      const left = [story.leftOut ? `${many(story.leftOut, "older entry")} left out.` : "", ...story.denied.map((each) => each.message)].filter(Boolean);
      this.words.textContent = left.join(" ") || (story.events.length ? "" : "Nothing is known of it yet.");
      this.#draw();
    } catch (error) {
      if (wish === this.#wish) this.words.textContent = error instanceof Refusal ? error.faults.map(sentence).join(" ") : "The story cannot be read: the server does not answer.";
    }
  }

  #draw() {
    if (!this.#story) return;
    const width = this.picture.clientWidth;
    const signature = JSON.stringify([this.#story.events, this.#story.lanes, width]);
    if (width && this.picture.signature !== signature) {
      this.picture.signature = signature;
      this.picture.replaceChildren(axis(this.#story, width));
    }
    const events = [...this.#story.events].reverse(), rest = events.length - this.#most;
    const units = this.#story.events.some((event) => event.unit > 0);
    this.list.start = events.length;
    reconcile(this.list, [...events.slice(0, this.#most).map((event, place) => ({ event, before: events[place + 1] })), ...(rest > 0 ? [{ rest }] : [])], {
      key: (item) => item.event ? [item.event.time, item.event.kind, item.event.reason, item.event.object, item.event.message].join(" ") : "rest",
      signature: (item) => JSON.stringify(item),
      make: (item) => item.event ? entry(item.event, item.before, units) : h("li", { class: "rest" },
        h("button", { type: "button", class: "link", "data-focus": "rest", onclick: () => { this.#most += PAGE; this.#draw(); } }, `Show ${Math.min(PAGE, item.rest)} older`)),
    });
  }
}

/** Where it happened: `unit 0, prefill 1`; the unit only where there are several; nothing that the message says. */
const where = (event, units) => [event.unit === null || !units || event.message.includes(`unit ${event.unit}`) ? "" : `unit ${event.unit}`, event.role && !event.message.includes(event.role) ? `${event.role}${event.replica === null ? "" : ` ${event.replica}`}` : ""].filter(Boolean).join(", ");

function entry(event, before, units) {
  const gap = before ? (Date.parse(event.time) - Date.parse(before.time)) / 1000 : 0;
  const times = event.count > 1 ? `, ${event.count} times${event.last ? `, last ${clock(event.last)}` : ""}` : "";
  return h(
    "li",
    { class: "event", "data-kind": event.type === "Warning" ? "warning" : event.kind },
    h("span", { class: "when" }, h("time", { datetime: event.time }, clock(event.time)), gap >= 1 ? h("span", { class: "dim" }, ` +${span(gap)}`) : null),
    h("span", { class: "what" },
      h("span", { class: "word" }, spaced(event.reason || event.kind)), event.type === "Warning" ? h("span", { class: "hidden" }, "Warning: ") : null,
      h("span", { class: "dim" }, `${where(event, units)}${times} `), event.message),
  );
}
