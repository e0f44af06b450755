/** A domain drawn small: a column for each node, and one path for everything of one colour.
 *
 * So a rack has a handful of elements, whatever it holds, and 5,000 nodes are still a page.
 */

import { h, svg } from "./dom.js";
import { look } from "./floor-rows.js";

/** @param {any} box @param {any} view with `cell`, the size of a cell in pixels @returns {SVGElement} */
export function small(box, view) {
  const { cell } = view, gap = cell > 4 ? 1 : 0.5, tall = box.all.reduce((most, node) => Math.max(most, node.cells), 1);
  const paths = new Map();
  const draw = (kind, column, from, cells) => {
    const corner = `M${column * cell} ${(tall - from - cells) * cell}`;
    paths.set(kind, `${paths.get(kind) ?? ""}${corner}h${cell - gap}v${cells * cell - gap}h${gap - cell}z`);
  };
  box.all.forEach((node, column) => {
    let from = 0;
    const stack = (kind, cells) => {
      if (cells > 0) draw(kind, column, from, cells);
      from += cells;
    };
    for (const run of node.runs) stack(look("bit", run, view), run.cells);
    stack("bit other", node.others);
    for (let each = 0; each < node.free; each += 1) stack(node.closed ? "bit closed" : "bit free", 1);
    if (node.closed) paths.set("bit shut", `${paths.get("bit shut") ?? ""}M${column * cell} ${tall * cell + 1}h${cell - gap}v2h${gap - cell}z`);
  });
  const width = Math.max(1, box.all.length) * cell, height = tall * cell + 3;
  const picture = svg("svg", { class: "bits", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  for (const [kind, path] of [...paths].sort()) picture.append(svg("path", { class: kind, d: path }));
  return picture;
}

/** The node under the pointer. @param {any} box @param {Element} picture @param {number} x @returns {any} */
export function nodeAt(box, picture, x) {
  const frame = picture.getBoundingClientRect();
  return box.all[Math.floor((x - frame.left) / frame.width * box.all.length)] ?? null;
}

/** The letters of the roles that are here, so that colour is not all there is. @param {any} box */
export function letters(box) {
  const found = new Map();
  for (const node of box.all) for (const run of node.runs) found.set(run.tag[0], run);
  return [...found].sort().slice(0, 4).map(([letter, run]) => h("span", { class: `letter i${run.ink}` }, letter));
}
