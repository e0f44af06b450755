/** How many racks stand side by side, so that the floor is about a screen high. Pure. */

import { leaves } from "./floor-model.js";

const FRAME = 22, GAP = 8, ROW = 3, ROWS = [30, 28, 26, 24, 22, 20];
const HEAD = { whole: 44, small: 36 }, CELL = { whole: 13, small: 2.2 }, MOST = { whole: 44, small: 24 };

/** @typedef {{columns: number, widest: number, cell: number, row: number, name: number, chips: number, tile: number}} Layout */

/** @param {any} top the box that is drawn @param {boolean} whole @param {number} width of the floor, in pixels
 * @param {number} high as high as it should be @returns {Layout} */
export function layout(top, whole, width, high) {
  const racks = leaves(top), mode = whole ? "whole" : "small";
  const nodes = Math.max(1, ...racks.map((box) => box.all.length)), cells = Math.max(1, ...top.all.map((node) => node.cells));
  const name = whole ? Math.min(230, Math.round(Math.max(4, ...top.all.map((node) => node.name.length)) * 6.4) + 10) : 0;
  const chips = whole ? Math.max(0, ...top.all.map(chipsOf)) : 0;
  const least = whole ? name + chips + cells * CELL.whole + 20 : Math.max(54, nodes * CELL.small + 14);
  const widest = whole ? name + chips + cells * MOST.whole + 20 : Math.max(130, nodes * MOST.small + 16);
  const inner = width - FRAME * depth(top);
  const groups = top.boxes.length ? top.boxes.map((box) => leaves(box).length) : [racks.length];
  const tile = (columns) => Math.min(widest, (inner - GAP * (columns - 1)) / columns);
  const cell = (columns) => Math.floor(Math.min(MOST[mode], (tile(columns) - 16) / nodes) * 4) / 4;
  const rack = (columns, row) => HEAD[mode] + (whole ? nodes * (row + ROW) : cells * cell(columns));
  const total = (columns, row = 20) => groups.reduce((sum, count) => sum + Math.ceil(count / columns) * (rack(columns, row) + GAP) + FRAME * 2, 0);
  const most = Math.max(1, Math.min(Math.floor((inner + GAP) / (least + GAP)), Math.max(...groups)));
  const fitting = Array.from({ length: most }, (_none, place) => place + 1).find((columns) => total(columns) <= high) ?? most;
  const columns = balanced(Math.max(...groups), whole ? most : fitting);
  const row = ROWS.find((each) => total(columns, each) <= high) ?? ROWS[ROWS.length - 1];
  return { columns, widest, row, cell: whole ? 0 : cell(columns), name, chips, tile: tile(columns) };
}

/** As many columns as give rows of the same length: three racks stand beside one another, not two and one. */
const balanced = (racks, columns) => Math.ceil(racks / Math.ceil(racks / columns));

const depth = (box) => box.boxes.length ? 1 + Math.max(...box.boxes.map(depth)) : 0;

/** The room that the marks of pods without a device need. */
const chipsOf = (node) => node.runs.reduce((sum, run) => sum + (run.cells ? 0 : run.tag.length * 7 + 14), 0);
