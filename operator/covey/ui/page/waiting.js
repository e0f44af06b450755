/** What waits, and why: first in sight. A card for each gang, with all that there is to say of it. */

import { byId, h, reconcile, set, write } from "./dom.js";
import { select } from "./floor-keys.js";
import { since, spaced, span } from "./words.js";

const FEW = 4;
/** What every gang goes through is told only of one that it takes this long, in seconds. */
const PATIENCE = 8;
const PASSING = new Set(["Waiting", "Starting"]);
let all = false;

/** Whether it is only the ordinary way of a start, so far. @param {any} each @param {any} gang @param {number} now ms */
export const passing = (each, gang, now) => PASSING.has(each.reason) && since(each.since || gang.created, now) < PATIENCE;

/** What waits, by gang: who needs a person first, then who has no place, then the longest.
 * @param {any} state @param {(gang: any) => boolean} shows @param {number} now ms */
export function byGang(state, shows, now) {
  const found = new Map();
  for (const each of Object.values(state.waiting)) {
    const gang = state.gangs[each.gang];
    if (!gang || !shows(gang) || passing(each, gang, now)) continue;
    if (!found.has(each.gang)) found.set(each.gang, []);
    found.get(each.gang).push(each);
  }
  const cards = [...found].map(([gang, reasons]) => ({
    gang,
    reasons: reasons.sort((one, two) => Number(two.needsPerson) - Number(one.needsPerson) || start(one).localeCompare(start(two))),
    person: reasons.some((each) => each.needsPerson),
    since: reasons.map((each) => each.since).filter(Boolean).sort()[0] ?? "",
    placeless: ["waiting", "failed"].includes(state.gangs[gang].state),
    units: state.gangs[gang].units.length > 1,
  }));
  return cards.sort((one, two) => Number(two.person) - Number(one.person) || Number(two.placeless) - Number(one.placeless) || start(one).localeCompare(start(two)));
}

const start = (each) => each.since || "~";

/** @param {import("./store.js").Store} store @param {() => number} now the server's clock in ms */
export function drawWaiting(store, now) {
  const chosen = store.choice.gang;
  const cards = byGang(store.state, (gang) => store.shows(gang), now());
  set(byId("waiting"), "hidden", cards.length ? null : "");
  write(byId("waiting-count"), String(cards.length));
  const items = all ? cards : cards.filter((each, place) => place < FEW || each.gang === chosen);
  const more = cards.length - items.length;
  reconcile(byId("waiting-list"), [...items, ...(more > 0 || (all && cards.length > FEW) ? [{ gang: "", more }] : [])], {
    key: (item) => item.gang,
    signature: (item) => JSON.stringify([item, chosen === item.gang]),
    make: (item) => item.gang ? card(item, store) : moreOf(item.more, store, now),
  });
  for (const element of document.querySelectorAll("[data-since]")) write(element, span(since(element.dataset.since, now())));
}

/** Bring the times up to date, and show what has lasted long enough. @param {import("./store.js").Store} store @param {() => number} now */
export function tick(store, now) {
  if (store.state) drawWaiting(store, now);
}

function card(item, store) {
  const chosen = store.choice.gang === item.gang;
  const help = item.reasons.filter((each) => each.remedy || (each.message && each.meaning));
  return h(
    "li",
    { class: `card wait${item.person ? " person" : ""}${chosen ? " chosen" : ""}` },
    h("div", { class: "wait-head" },
      h("button", { type: "button", class: "link strong", "data-focus": "gang", "aria-pressed": String(chosen), onclick: () => select(item.gang, store) }, item.gang),
      item.since ? h("span", { class: "dim" }, "for ", h("time", { datetime: item.since, "data-since": item.since })) : null),
    ...item.reasons.map((each) => reason(each, item.units)),
    help.length ? h("details", {}, h("summary", { "data-focus": "why" }, "What it means, and what would help"), ...help.map(meaning)) : null,
  );
}

function reason(each, units) {
  return h("div", { class: "reason" },
    h("p", {}, h("span", { class: "word" }, spaced(each.reason)), each.needsPerson ? h("span", { class: "word bad" }, "Needs a person") : null,
      units && each.unit !== null ? h("span", { class: "dim" }, `unit ${each.unit}`) : null),
    h("p", { class: "message" }, each.message || each.meaning),
    each.reserved ? h("p", { class: "dim" }, each.reserved) : null);
}

const meaning = (each) => h("div", {},
  h("p", {}, h("strong", {}, spaced(each.reason)), " ", each.meaning),
  each.remedy ? h("p", { class: "remedy" }, each.remedy) : null);

function moreOf(more, store, now) {
  const words = more > 0 ? `Show ${more} more` : "Show fewer";
  return h("li", {}, h("button", { type: "button", class: "link", "data-focus": "more", onclick: () => { all = !all; drawWaiting(store, now); } }, words));
}
