/** The floor as a table: the same for who cannot see it, or wants to search and copy. */

import { byId, h, reconcile } from "./dom.js";
import { runName, runState } from "./floor-words.js";
import { count } from "./words.js";

/** Rows that are drawn at once; more are a button away. */
const PAGE = 200;
let shown = PAGE;

/** @param {import("./floor.js").FloorView} view */
export function drawTable(view) {
  const place = byId("table"), nodes = view.top.all, levels = view.state.topology.levels;
  if (!place.querySelector("tbody") || place.dataset.levels !== levels.join()) {
    place.dataset.levels = levels.join();
    const heads = [...levels, "Node", "State", "Free", "Other pods", "Pods of gangs"];
    place.replaceChildren(
      h("table", {}, h("caption", {}), h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)))), h("tbody")),
      h("button", { type: "button", class: "more", onclick: () => { shown += PAGE; drawTable(view); } }),
    );
  }
  const most = nodes.slice(0, shown);
  place.querySelector("caption").textContent = `${view.top.title}: ${count(most.length)} of ${count(nodes.length)} nodes, in ${view.state.device}`;
  reconcile(place.querySelector("tbody"), most, {
    key: (node) => node.key,
    signature: (node) => JSON.stringify(node),
    make: (node) => h(
      "tr",
      {},
      node.path.map((name) => h("td", {}, name ?? "–")),
      h("th", { scope: "row" }, node.name),
      h("td", {}, node.closed ?? "open"),
      h("td", { class: "number" }, count(node.free * view.state.scale)),
      h("td", { class: "number" }, count(node.others * view.state.scale)),
      h("td", {}, node.runs.map((run) => h("div", {}, `${runName(run)}, ${runState(run)}`))),
    ),
  });
  const rest = nodes.length - most.length, more = place.querySelector(".more");
  more.hidden = rest <= 0;
  more.textContent = `Show ${count(Math.min(PAGE, rest))} more`;
}
