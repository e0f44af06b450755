/** The gang that is selected: how it stands, and its story. */

import { byId, h, set } from "./dom.js";
import { stateWords } from "./gangs.js";
import { StoryPart } from "./story.js";
import { SIGNS, clock, count, spaced } from "./words.js";

/** @param {import("./store.js").Store} store @param {import("./stream.js").Server} server */
export function gangDrawer(store, server) {
  const place = byId("gang");
  const story = new StoryPart(server);
  let drawn = "";
  return () => {
    const key = store.choice.gang, gang = key === null ? null : store.state.gangs[key];
    if (key !== null && !gang) {
      store.choose({ gang: null });
      return;
    }
    set(place, "hidden", gang ? null : "");
    if (!gang) {
      drawn = "";
      story.show(null, "");
      return;
    }
    const signature = JSON.stringify([key, gang]);
    if (signature === drawn) return;
    const same = drawn.startsWith(`[${JSON.stringify(key)},`);
    const open = same && place.querySelector("details")?.open;
    const focus = same && place.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    drawn = signature;
    place.replaceChildren(head(gang, store), facts(gang, open), story.element);
    // Where it stands below the floor, as on a phone, a tap would seem to do nothing.
    if (!same && place.getBoundingClientRect().top > innerHeight / 2) place.scrollIntoView();
    if (focus) place.querySelector(`[data-focus="${focus}"]`)?.focus({ preventScroll: true });
    story.show(key, signature);
  };
}

function head(gang, store) {
  return h(
    "div",
    { class: "gang-head" },
    h("h2", { id: "gang-title" }, gang.name, h("span", { class: "dim" }, ` ${gang.namespace}`)),
    h("p", { class: "state-line" }, h("span", { class: `state ${gang.state}`, "aria-hidden": "true" }, SIGNS[gang.state]), stateWords(gang)),
    h("button", { type: "button", class: "quiet", "data-focus": "close", onclick: () => store.choose({ gang: null }) }, "Close"),
  );
}

function facts(gang, open) {
  const wrong = gang.conditions.filter((each) => each.wrong);
  return h(
    "div",
    { class: "gang-facts" },
    gang.problem ? h("p", { class: "bad" }, gang.problem) : null,
    claims(gang.conditions),
    rollout(gang.rollout),
    roles(gang.roles),
    gang.units.length > 1 || gang.units.some((unit) => unit.placement) ? units(gang.units) : null,
    advice(gang),
    wrong.length || gang.conditions.length
      ? h("details", { open: open ? "" : null }, h("summary", { "data-focus": "conditions" }, wrong.length ? `Conditions, ${wrong.length} not as they should be` : "Conditions, all as they should be"), conditions(gang.conditions))
      : null,
  );
}

/** Room that it takes from others, and that others take from it: between whom, and for which purpose. */
const CLAIMS = { Preempting: "Takes capacity", Preempted: "Gives way" };

function claims(list) {
  return list.filter((each) => CLAIMS[each.type] && each.status === "True").map((each) =>
    h("p", { class: "claim" }, h("strong", {}, CLAIMS[each.type]), " ", h("span", { class: "word" }, spaced(each.reason)), each.message));
}

function rollout(it) {
  if (!it) return null;
  const words = it.paused ? "Rollout paused" : it.hold ? "Rollout held" : "Rolling out";
  return h("div", { class: `rollout${it.hold || it.paused ? " held" : ""}` },
    h("p", {}, h("strong", {}, words), ` ${it.from} → ${it.to}, wave ${it.wave}: ${count(it.ready)} replicas new and ready, ${count(it.outdated)} still old`),
    progress(it.ready, it.ready + it.outdated),
    it.hold ? h("p", {}, h("span", { class: "word" }, spaced(it.hold.gate)), it.hold.reason, h("span", { class: "dim" }, ` since ${clock(it.hold.since)}`)) : null);
}

const progress = (value, most) => h("progress", { value, max: Math.max(1, most), "aria-label": "Replicas of the new revision that are ready" });

function roles(list) {
  const feasible = list.some((role) => role.maxFeasible !== null);
  const heads = ["Role", "Ready", "Admitted", "Minimum", "Pods each", "Updated", "Restarts", ...(feasible ? ["Would fit"] : [])];
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Roles", "data-focus": "roles" }, h("table", { class: "facts" },
    h("thead", {}, h("tr", {}, heads.map((name, place) => h("th", { scope: "col", class: place ? "number" : null }, name)))),
    h("tbody", {}, list.map((role) => h("tr", {},
      h("th", { scope: "row" }, h("span", { class: `letter i${role.ink % 8}`, "aria-hidden": "true" }, role.letter), role.name),
      [`${role.ready}/${role.replicas}`, role.admitted, role.minimum, role.size, role.updated, role.restarts, ...(feasible ? [role.maxFeasible ?? "–"] : [])]
        .map((value) => h("td", { class: "number" }, String(value))))))));
}

function units(list) {
  return h("ul", { class: "units" }, list.slice(0, 64).map((unit) => h("li", {},
    h("span", { class: `state ${unit.state}`, "aria-hidden": "true" }, SIGNS[unit.state]),
    list.length > 1 ? `Unit ${unit.unit}: ${unit.state}` : "",
    unit.placement ? h("span", { class: "dim" }, list.length > 1 ? `, in ${unit.placement}` : `In ${unit.placement}`) : null,
    unit.reason ? h("span", { class: "message" }, list.length > 1 || unit.placement ? `. ${unit.reason}` : unit.reason) : null)));
}

function advice(gang) {
  return gang.advice.length ? h("ul", { class: "advice" }, gang.advice.map((each) => h("li", {},
    h("p", {}, h("span", { class: "word" }, spaced(each.reason)), each.meaning),
    each.remedy ? h("p", { class: "remedy" }, each.remedy) : null))) : null;
}

function conditions(list) {
  return h("ul", { class: "conditions" }, list.map((each) => h("li", { class: each.wrong ? "wrong" : null },
    h("strong", {}, `${each.type} = ${each.status}`), ` ${each.reason}`, each.message ? `: ${each.message}` : "",
    h("span", { class: "dim" }, ` since ${clock(each.lastTransitionTime)}`))));
}
