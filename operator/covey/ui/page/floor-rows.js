/** A domain drawn whole: a row for each node, a bar with its tag for each pod. */

import { h } from "./dom.js";
import { boxName, free, nodeName, runName, runState, sign } from "./floor-words.js";
import { count } from "./words.js";

const CLASS = { ready: "", starting: "starting", held: "held", waiting: "held", failed: "failed", planned: "planned" };

/** How a node's row is made and when anew. @param {any} view @param {number} level */
export const rowHow = (view, level) => ({
  key: (node) => node.key,
  signature: (node) => JSON.stringify([node, node.runs.some((run) => run.gang === view.gang), view.gang, view.planned, level]),
  make: (node) => row(node, view, level),
});

function row(node, view, level) {
  const strip = h("span", { class: "strip", "aria-hidden": "true" }), chips = h("span", { class: "chips", "aria-hidden": "true" });
  for (const run of node.runs) (run.cells ? strip : chips).append(run.cells ? bar(run, view) : chip(run, view));
  for (let cell = 0; cell < node.others; cell += 1) strip.append(h("span", { class: "cell other" }));
  for (let cell = 0; cell < node.free; cell += 1) strip.append(h("span", { class: node.closed ? "cell closed" : "cell free" }));
  return h(
    "div",
    { class: `node${node.runs.length ? " mine" : ""}${node.closed ? " shut" : ""}`, role: "treeitem", tabindex: "-1", "aria-level": level, "aria-label": nodeName(node, view.state) },
    h("span", { class: "name", "aria-hidden": "true" }, node.name, node.closed ? h("span", { class: "why" }, node.closed) : null),
    strip,
    chips,
  );
}

function bar(run, view) {
  const label = run.cells > 3 ? `${run.tag} · ${run.index}` : run.tag;
  const element = h("span", { class: look("run", run, view), "data-pod": run.pod }, h("span", { class: "tag" }, run.cells > 1 || label.length < 3 ? label : run.tag[0]), mark(run));
  element.style.setProperty("--n", String(run.cells));
  return element;
}

const mark = (run) => (run.state === "ready" && !run.draining) || run.planned || run.cells < 3 ? null : h("span", { class: "sign" }, sign(run));
const chip = (run, view) => h("span", { class: look("run chip", run, view), "data-pod": run.pod }, run.tag);

/** The classes of a run, for both ways to draw it. @param {string} kind @param {any} run @param {any} view */
export function look(kind, run, view) {
  const own = view.planned ? (run.planned ? " chosen" : " faded") : view.gang === null ? "" : run.gang === view.gang ? " chosen" : " faded";
  return `${kind} i${run.ink} s${run.shade} ${CLASS[run.state] ?? ""}${run.draining ? " draining" : ""}${own}`;
}

/** The lines of the tip for a node, or for one of its pods. @param {any} node @param {any} view @param {string} [pod] */
export function nodeTip(node, view, pod) {
  const runs = pod ? node.runs.filter((run) => run.pod === pod) : node.runs;
  return [
    h("strong", {}, node.name),
    h("p", { class: "dim" }, node.closed ? `${node.closed}, ` : "", free(node, view.state)),
    ...runs.slice(0, 12).map((run) => h("p", {}, h("span", { class: `swatch i${run.ink} s${run.shade}` }), `${runName(run)} `, h("span", { class: "dim" }, `${sign(run)} ${runState(run)}`))),
    runs.length > 12 ? h("p", { class: "dim" }, `and ${runs.length - 12} more`) : null,
    node.others && !pod ? h("p", {}, h("span", { class: "swatch other" }), `${count(node.others * view.state.scale)} ${view.state.device} of other pods`) : null,
  ];
}

/** The lines of the tip for a domain. @param {any} box @param {any} view */
export function boxTip(box, view) {
  const gangs = [...box.gangs];
  return [
    h("strong", {}, box.title),
    h("p", { class: "dim" }, boxName(box, view.state).slice(box.title.length + 2)),
    ...gangs.slice(0, 8).map((gang) => h("p", {}, gang)),
    gangs.length > 8 ? h("p", { class: "dim" }, `and ${gangs.length - 8} more`) : null,
  ];
}
