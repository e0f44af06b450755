/** The gangs, a row each. */

import { byId, h, reconcile, set, write } from "./dom.js";
import { select } from "./floor-keys.js";
import { shown } from "./floor-model.js";
import { SIGNS, count, many, natural } from "./words.js";

const ORDER = ["failed", "waiting", "held", "starting", "serving", "ready"];
const PAGE = 60;
let most = PAGE;

/** @param {import("./store.js").Store} store */
export function drawGangs(store) {
  const { state, choice } = store;
  const found = [...shown(state, (gang) => store.shows(gang))].sort(([one, first], [two, second]) => rank(first) - rank(second) || natural(one, two));
  const all = Object.keys(state.gangs).length;
  write(byId("gangs-count"), found.length === all ? String(all) : `${found.length} of ${all}`);
  const none = all ? "No gang has this name here." : "No DisaggregatedInference is here yet. kubectl apply one, and it appears.";
  write(byId("gangs-empty"), none);
  set(byId("gangs-empty"), "hidden", found.length ? "" : null);
  const foreign = state.foreign === 1 ? "1 gang of another controller is" : `${count(state.foreign)} gangs of other controllers are`;
  write(byId("gangs-foreign"), `${foreign} not listed, having no DisaggregatedInference. What they take is among the other pods.`);
  set(byId("gangs-foreign"), "hidden", state.foreign ? null : "");
  const rest = found.length - most;
  reconcile(byId("gangs-list"), [...found.slice(0, most), ...(rest > 0 ? [["", rest]] : [])], {
    key: ([key]) => key,
    signature: ([key, gang]) => JSON.stringify([gang, choice.gang === key]),
    make: ([key, gang]) => key ? row(key, gang, store) : h("li", {}, h("button", { type: "button", class: "link", onclick: () => { most += PAGE; drawGangs(store); } }, `Show ${Math.min(PAGE, rest)} more`)),
  });
}

const rank = (gang) => ORDER.indexOf(gang.state);

function row(key, gang, store) {
  const chosen = store.choice.gang === key;
  return h("li", {}, h(
    "button",
    { type: "button", class: `gang-row${chosen ? " chosen" : ""}`, "aria-pressed": String(chosen), "data-focus": "gang", onclick: () => select(key, store) },
    h("span", { class: `state ${gang.state}`, "aria-hidden": "true" }, SIGNS[gang.state]),
    h("span", { class: "gang-name" }, h("strong", {}, gang.name), h("span", { class: "dim" }, gang.namespace)),
    h("span", { class: "gang-state dim" }, stateWords(gang)),
    h("span", { class: "gang-roles" }, gang.roles.map((role) => h("span", { class: "gang-role" },
      h("span", { class: `letter i${role.ink % 8}`, "aria-hidden": "true" }, role.letter),
      h("span", { class: "hidden" }, `${role.name} `), `${role.ready}/${role.replicas}`, h("span", { class: "hidden" }, " ready")))),
  ));
}

/** Its state in a few words. @param {any} gang */
export function stateWords(gang) {
  if (gang.draining) return "being deleted";
  if (gang.suspended) return "suspended";
  const units = gang.total > 1 ? `, ${gang.ready} of ${many(gang.total, "unit")}` : "";
  const rollout = gang.rollout ? gang.rollout.paused ? ", rollout paused" : gang.rollout.hold ? ", rollout held" : `, rolling out` : "";
  // Of what serves, or is on its way, the state says enough.
  const word = gang.status && gang.state !== "ready" && gang.status.toLowerCase() !== gang.state ? `${gang.status}, ` : "";
  return `${word}${gang.state}${units}${rollout}`;
}
