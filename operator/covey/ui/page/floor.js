/** The floor: every domain and node, as a tree that keyboard and screen reader walk, and that is drawn as far as it is seen. */

import { byId, h, reconcile, set, write } from "./dom.js";
import { layout } from "./floor-layout.js";
import { boxOf, buildFloor, shown, trail } from "./floor-model.js";
import { rowHow } from "./floor-rows.js";
import { letters, small } from "./floor-small.js";
import { drawTable } from "./floor-table.js";
import { boxName } from "./floor-words.js";
import { count } from "./words.js";

/** Up to so many nodes are drawn whole, each with a row; more are drawn small. */
export const WHOLE = 72;

/** What is drawn now, for the keys and the tip: elements' keys to boxes and nodes. */
export class FloorView {
  /** @type {Map<string, any>} */
  parts = new Map();
  /** @type {any} */
  root = null;
  /** @type {any} */
  top = null;
  /** A gang that is selected: the others are faded. @type {string | null} */
  gang = null;
  /** Whether a plan is drawn: everything else is faded. */
  planned = false;
  state = null;
  cell = 16;
  tile = 300;
  row = 20;
  name = 100;
  chips = 0;
  columns = 1;
  widest = 400;
  whole = true;
}

/** Draw what the store holds. @param {import("./store.js").Store} store @param {FloorView} view */
export function drawFloor(store, view) {
  const { state, choice } = store;
  const gangs = shown(state, (gang) => store.shows(gang));
  view.state = state;
  view.gang = choice.gang;
  view.planned = choice.gang === null && Boolean(choice.plan?.floor.pods.length);
  view.root = buildFloor(state, gangs, choice.plan);
  const way = trail(view.root, choice.zoom);
  view.top = way[way.length - 1];
  view.whole = view.top.all.length <= WHOLE;
  const tree = byId("tree");
  Object.assign(view, layout(view.top, view.whole, tree.clientWidth || 800, Math.max(380, globalThis.innerHeight - 250)));
  view.parts = new Map();
  note(view.top, view);
  for (const [name, value] of [["name", `${view.name}px`], ["chips", `${view.chips}px`], ["row", `${view.row}px`], ["columns", view.columns], ["widest", `${view.widest}px`]]) tree.style.setProperty(`--${name}`, value);
  set(tree, "class", `tree ${view.whole ? "whole" : "small"}${view.top.boxes.some((box) => box.boxes.length) ? "" : " boxes"}${view.tile < 112 ? " tight" : ""}${view.tile < 72 ? " tiny" : ""}`);
  const items = view.top.boxes.length ? view.top.boxes : [view.top];
  reconcile(tree, view.root.all.length ? items : [], boxHow(view, 1));
  refreshFrames(tree, view);
  fix(tree);
  crumbs(way, store);
  totals(view);
  legend(gangs, choice, view);
  empty(state);
  set(byId("zoom-gang"), "hidden", choice.gang === null || !view.root.gangs.has(choice.gang) || boxOf(view.root, choice.gang).key === view.top.key ? "" : null);
  set(tree, "hidden", choice.table ? "" : null);
  set(byId("table"), "hidden", choice.table ? null : "");
  set(byId("as-table"), "aria-pressed", choice.table);
  if (choice.table) drawTable(view);
}

function note(box, view) {
  view.parts.set(box.key, box);
  for (const node of box.nodes) view.parts.set(node.key, node);
  for (const inner of box.boxes) note(inner, view);
}

const boxHow = (view, level) => ({
  key: (box) => box.key,
  signature: (box) => box.boxes.length || view.whole ? `${box.key} ${level} ${view.whole} ${Boolean(box.boxes.length)}` : smallSignature(box, view),
  make: (box) => frame(box, view, level),
});

const smallSignature = (box, view) => JSON.stringify([box.key, box.title, view.cell, view.gang, view.planned, box.all]);

/** A domain's frame; what is in it is filled in by `refresh`, also later. */
function frame(box, view, level) {
  const inner = box.boxes.length > 0;
  const element = h(
    "div",
    { class: inner ? "domain" : "rack", role: "treeitem", tabindex: "-1", "aria-level": level, "aria-expanded": inner || view.whole ? "true" : "false" },
    h("div", { class: "head", "aria-hidden": "true" }, h("span", { class: "title" }), h("span", { class: "roles" }), h("span", { class: "note dim" })),
    inner || view.whole ? h("div", { class: inner ? box.boxes[0].boxes.length ? "domains" : "boxes" : "nodes", role: "group" }) : small(box, view),
  );
  element.refresh = (now, seen) => refresh(element, now, seen, level);
  element.refresh(box, view);
  return element;
}

function refresh(element, box, view, level) {
  const head = element.firstElementChild;
  const [title, roles, note] = head.children;
  write(title, box.title);
  write(note, `${box.mark ? `${box.mark} · ` : ""}${count(box.free * view.state.scale)}${view.tile < 112 && !box.boxes.length ? "" : " free"}`);
  set(element, "aria-label", boxName(box, view.state));
  set(element, "data-mark", box.mark);
  set(element, "data-mine", box.gangs.size > 0 && (view.gang === null || box.gangs.has(view.gang)));
  const body = element.children[1];
  if (box.boxes.length) reconcile(body, box.boxes, boxHow(view, level + 1));
  else if (view.whole) reconcile(body, box.nodes, rowHow(view, level + 1));
  else if (!roles.childElementCount) roles.append(...letters(box));
}

/** Leave exactly one stop for the Tab key. @param {any} tree */
function fix(tree) {
  const stops = [...tree.querySelectorAll("[role=treeitem]")];
  const current = stops.find((each) => each === document.activeElement) ?? stops.find((each) => each.tabIndex === 0) ?? stops[0];
  for (const each of stops) if (each.tabIndex !== (each === current ? 0 : -1)) each.tabIndex = each === current ? 0 : -1;
}

/** Refresh the frames that are kept, outermost first. @param {any} tree @param {FloorView} view */
function refreshFrames(tree, view) {
  for (const element of tree.querySelectorAll("[data-key]")) {
    const box = view.parts.get(element.dataset.key);
    if (element.refresh && box?.all) element.refresh(box, view);
  }
}

function crumbs(way, store) {
  const items = way.map((box, place) => ({ box, last: place === way.length - 1 }));
  reconcile(byId("crumbs"), items, {
    key: ({ box }) => box.key,
    signature: ({ box, last }) => `${box.title} ${last}`,
    make: ({ box, last }) => last
      ? h("span", { class: "crumb", "aria-current": "location" }, box.title)
      : h("button", { type: "button", class: "crumb link", "data-focus": "crumb", onclick: () => store.choose({ zoom: box.path }) }, box.title),
  });
}

function totals(view) {
  const { top, state } = view;
  const used = top.ours + top.others;
  const stranded = top.all.reduce((sum, node) => sum + (node.closed || node.ours + node.others > 0 ? node.free : 0), 0);
  const facts = [
    [`${state.device} used`, `${count(used * state.scale)} / ${count(top.cells * state.scale)}`],
    ["Free", count(top.free * state.scale)],
    ["Stranded", count(stranded * state.scale)],
    ["Nodes", count(top.all.length) + (top.closed ? `, ${top.closed} closed` : "")],
  ];
  reconcile(byId("totals"), facts, {
    key: ([name]) => name,
    signature: (fact) => fact.join(" "),
    make: ([name, value]) => h("div", { title: name === "Stranded" ? "Free devices on partly used or closed nodes: a pod that wants a whole node cannot have them" : null }, h("dt", {}, name), h("dd", {}, value)),
  });
}

/** Up to so many roles are named; of more, hovering and selecting say whose they are. */
const NAMED = 12;
const LOOKS = [["starting", "starting"], ["held", "has a node"], ["failed", "failed"], ["draining", "draining"]];

function legend(gangs, choice, view) {
  const roles = [...gangs].filter(([key]) => choice.gang === null || key === choice.gang)
    .flatMap(([key, gang]) => gang.roles.map((role) => ({ key, name: `${gang.name} ${role.name}`, ink: role.ink % 8, letter: role.letter, look: "" })));
  const planned = (choice.plan?.floor?.roles ?? []).map((role) => ({ key: role.workload, name: `${role.workload.split("/")[1]} ${role.role}, planned`, ink: role.ink % 8, letter: role.letter, look: "" }));
  const runs = view.top.all.flatMap((node) => node.runs);
  const looks = LOOKS.filter(([look]) => runs.some((run) => look === "draining" ? run.draining : run.state === look));
  const items = [
    ...planned, ...(roles.length > NAMED ? [] : roles),
    ...[...looks, ["free", "free"], ["other", "other pods"], ["closed", "closed node"]].map(([look, name]) => ({ key: look, name, ink: 0, letter: "", look })),
  ];
  reconcile(byId("legend"), items, {
    key: (item) => `${item.key} ${item.name}`,
    signature: (item) => JSON.stringify(item),
    make: (item) => h("li", { class: item.look ? "dim" : null },
      h("span", { class: item.look ? `swatch run ${item.look}` : `swatch letter i${item.ink}`, "aria-hidden": "true" }, item.letter), item.name),
  });
}

function empty(state) {
  const nodes = Object.keys(state.nodes).length;
  const denied = state.denied.some((each) => each.resource === "nodes");
  const words = nodes ? "" : denied ? "Your credentials may not list nodes, so there is no floor to draw." : "The cluster has no nodes yet.";
  write(byId("floor-empty"), words);
  set(byId("floor-empty"), "hidden", words ? null : "");
}
