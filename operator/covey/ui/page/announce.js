/** Says in a few words what has changed, for those who do not see it move. */

import { byId, h } from "./dom.js";
import { spaced } from "./words.js";

const MOST = 4, KEPT = 20;
/** Every gang goes through these. */
const ORDINARY = new Set(["Waiting", "Starting"]);

/** What is worth saying between two states. Pure. @param {any} before @param {any} after @returns {string[]} */
export function news(before, after) {
  const found = [];
  for (const [key, gang] of Object.entries(after.gangs)) {
    const old = before.gangs[key];
    if (!old) found.push(`${key} has appeared, ${gang.state}`);
    else if (old.state !== gang.state) found.push(`${key} is ${gang.state}`);
    else if (Boolean(old.rollout) !== Boolean(gang.rollout)) found.push(`${key}: ${gang.rollout ? "rollout has begun" : "rollout has ended"}`);
  }
  for (const key of Object.keys(before.gangs)) if (!after.gangs[key]) found.push(`${key} is gone`);
  for (const [key, each] of Object.entries(after.waiting)) if (before.waiting[key]?.reason !== each.reason && !ORDINARY.has(each.reason)) found.push(`${each.gang} waits: ${spaced(each.reason)}`);
  return found.length > MOST ? [...found.slice(0, MOST), `and ${found.length - MOST} more changes`] : found;
}

/** @returns {(store: import("./store.js").Store) => void} */
export function announcer() {
  let before = null;
  return (store) => {
    if (before !== null && before !== store.state) {
      const live = byId("live");
      for (const line of news(before, store.state)) live.append(h("p", {}, line));
      while (live.childElementCount > KEPT) live.firstElementChild.remove();
    }
    before = store.state;
  };
}
