/** The floor by keyboard and mouse: one stop for Tab, arrows inside, Enter and Escape. */

import { byId } from "./dom.js";
import { boxOf } from "./floor-model.js";

/** @param {import("./store.js").Store} store @param {import("./floor.js").FloorView} view */
export function startFloor(store, view) {
  const tree = byId("tree");
  tree.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const item = event.target.closest("[role=treeitem]");
    const next = item && step(event.key, item, tree);
    if (next) go(next);
    else if (event.key === "Enter" || event.key === " ") act(item, store, view);
    else if (event.key !== "Backspace" || !out(store)) return;
    event.preventDefault();
  });
  tree.addEventListener("focusin", (event) => {
    if (event.target.matches("[role=treeitem]")) only(event.target, tree);
  });
  tree.addEventListener("click", (event) => {
    const pod = event.target.closest("[data-pod]")?.dataset.pod;
    const run = pod && [...view.parts.values()].flatMap((part) => part.runs ?? []).find((each) => each.pod === pod);
    const item = event.target.closest("[role=treeitem]");
    if (run) select(run.gang, store);
    else act(item, store, view);
  });
  byId("zoom-gang").addEventListener("click", () => store.choose({ zoom: boxOf(view.root, store.choice.gang).path }));
  byId("as-table").addEventListener("click", () => store.choose({ table: !store.choice.table }));
}

/** One level out, if there is one. @param {import("./store.js").Store} store */
export function out(store) {
  if (!store.choice.zoom.length) return false;
  store.choose({ zoom: store.choice.zoom.slice(0, -1) });
  return true;
}

/** Select a gang, or no longer where it is selected already. @param {string} gang @param {import("./store.js").Store} store */
export const select = (gang, store) => store.choose({ gang: store.choice.gang === gang ? null : gang });

function step(key, item, tree) {
  const level = item.getAttribute("aria-level");
  const peers = [...tree.querySelectorAll(`[role=treeitem][aria-level="${level}"]`)];
  const place = peers.indexOf(item);
  switch (key) {
    case "ArrowDown": return peers[place + 1];
    case "ArrowUp": return peers[place - 1];
    case "ArrowRight": return item.querySelector("[role=treeitem]");
    case "ArrowLeft": return item.parentElement.closest("[role=treeitem]");
    case "Home": return peers[0];
    case "End": return peers[peers.length - 1];
    default: return null;
  }
}

function go(item) {
  item.focus();
  item.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function only(item, tree) {
  for (const each of tree.querySelectorAll('[role=treeitem][tabindex="0"]')) each.tabIndex = -1;
  item.tabIndex = 0;
}

/** Open a domain; on a node select its gang, and with each further Enter the next one there. */
function act(item, store, view) {
  const part = item && view.parts.get(item.dataset.key);
  if (!part) return;
  if (part.all) {
    if (part.key !== view.top.key) store.choose({ zoom: part.path });
    return;
  }
  const gangs = [...new Set(part.runs.map((run) => run.gang))];
  if (gangs.length) store.choose({ gang: gangs[gangs.indexOf(store.choice.gang) + 1] ?? null });
}
