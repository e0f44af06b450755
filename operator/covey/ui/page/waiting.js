/** What waits, and why: first in sight. */

import { byId, h, reconcile, set, write } from "./dom.js";
import { select } from "./floor-keys.js";
import { since, spaced, span } from "./words.js";

const FEW = 4;
let all = false;

/** @param {import("./store.js").Store} store @param {() => number} now the server's clock in ms */
export function drawWaiting(store, now) {
  const { state, choice } = store;
  const waiting = Object.entries(state.waiting)
    .filter(([, each]) => state.gangs[each.gang] && store.shows(state.gangs[each.gang]))
    .sort(([, one], [, two]) => Number(two.needsPerson) - Number(one.needsPerson) || (one.since || "~").localeCompare(two.since || "~"));
  set(byId("waiting"), "hidden", waiting.length ? null : "");
  write(byId("waiting-count"), String(waiting.length));
  const chosen = waiting.filter(([, each]) => choice.gang === each.gang);
  const rest = waiting.filter(([, each]) => choice.gang !== each.gang);
  const items = all ? [...chosen, ...rest] : [...chosen, ...rest].slice(0, Math.max(FEW, chosen.length));
  const more = waiting.length - items.length;
  reconcile(byId("waiting-list"), [...items, ...(more > 0 || (all && waiting.length > FEW) ? [["more", more]] : [])], {
    key: ([key]) => key,
    signature: (item) => JSON.stringify([item, choice.gang]),
    make: ([key, each]) => key === "more" ? moreOf(each, store, now) : card(key, each, store),
  });
  tick(now);
}

/** Bring the times up to date. @param {() => number} now */
export function tick(now) {
  for (const element of document.querySelectorAll("[data-since]")) write(element, span(since(element.dataset.since, now())));
}

function card(_key, each, store) {
  const title = each.unit === null || store.state.gangs[each.gang].units.length < 2 ? each.gang : `${each.gang} unit ${each.unit}`;
  return h(
    "li",
    { class: `card wait${each.needsPerson ? " person" : ""}${store.choice.gang === each.gang ? " chosen" : ""}` },
    h("div", { class: "wait-head" },
      h("button", { type: "button", class: "link strong", "data-focus": "gang", "aria-pressed": String(store.choice.gang === each.gang), onclick: () => select(each.gang, store) }, title),
      each.since ? h("span", { class: "dim" }, "for ", h("time", { datetime: each.since, "data-since": each.since })) : null),
    h("p", {}, h("span", { class: "word" }, spaced(each.reason)), each.needsPerson ? h("span", { class: "word bad" }, "Needs a person") : null),
    h("p", { class: "message" }, each.message || each.meaning),
    each.reserved ? h("p", { class: "dim" }, each.reserved) : null,
    each.remedy || (each.message && each.meaning) ? h("details", {}, h("summary", { "data-focus": "why" }, "What it means, and what would help"),
      each.message ? h("p", {}, each.meaning) : null, each.remedy ? h("p", { class: "remedy" }, each.remedy) : null) : null,
  );
}

function moreOf(more, store, now) {
  const words = more > 0 ? `Show ${more} more` : "Show fewer";
  return h("li", {}, h("button", { type: "button", class: "link", "data-focus": "more", onclick: () => { all = !all; drawWaiting(store, now); } }, words));
}
