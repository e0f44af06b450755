/** The floor as nested boxes: domains, nodes, and the runs of cells that pods hold. Pure: no element is touched.
 *
 * One cell stands for one device (`scale` of them where nodes are large). The same words and order as in the pictures of
 * `covey plan -o picture`.
 */

import { natural, titled } from "./words.js";

/** @typedef {{pod: string, gang: string, role: string, unit: number, replica: number, index: number, ink: number, shade: number,
 *             tag: string, cells: number, state: string, reason: string, draining: boolean, planned: boolean}} Run */
/** @typedef {{key: string, name: string, path: (string | null)[], cells: number, others: number, closed: string | null, runs: Run[],
 *             ours: number, free: number}} NodeBox */
/** @typedef {{key: string, level: string, title: string, path: (string | null)[], boxes: Box[], nodes: NodeBox[], all: NodeBox[],
 *             cells: number, free: number, ours: number, others: number, closed: number, gangs: Set<string>, mark: string | null}} Box */

/** The gangs that the filters leave, by key.
 * @param {any} state @param {(gang: any) => boolean} shows @returns {Map<string, any>} */
export const shown = (state, shows) => new Map(Object.entries(state.gangs).filter(([, gang]) => shows(gang)));

/** Lay the whole floor out.
 * @param {any} state @param {Map<string, any>} gangs those in colour; pods of others count as other pods' cells
 * @param {any} plan the answer to a pasted manifest, or null @returns {Box} the root, whose path is empty */
export function buildFloor(state, gangs, plan) {
  const runs = runsOf(state, gangs, plan);
  const hidden = strangers(state, gangs);
  const levels = state.topology.levels;
  const nodes = Object.entries(state.nodes).map(([name, node]) => {
    const own = runs.get(name) ?? [];
    const others = Math.min(node.cells, node.others + (hidden.get(name) ?? 0));
    const ours = own.reduce((sum, run) => sum + run.cells, 0);
    const path = levels.map((_level, depth) => node.path[depth] ?? null);
    return { key: `node/${name}`, name, path, cells: node.cells, others, closed: node.closed, runs: own, ours, free: Math.max(0, node.cells - others - ours) };
  });
  nodes.sort((one, two) => byPath(one.path, two.path) || natural(one.name, two.name));
  const marks = plan ? marksOf(plan, levels) : new Map();
  return box(levels, 0, [], nodes, marks);
}

/** The box at a path, or the nearest one above it that is still there.
 * @param {Box} root @param {(string | null)[]} path @returns {Box[]} from the root down */
export function trail(root, path) {
  const found = [root];
  for (const name of path) {
    const next = found[found.length - 1].boxes.find((each) => each.path[each.path.length - 1] === name);
    if (!next) break;
    found.push(next);
  }
  return found;
}

/** The smallest box that holds a gang's pods. @param {Box} root @param {string} gang @returns {Box} */
export function boxOf(root, gang) {
  const inside = root.boxes.filter((each) => each.gangs.has(gang));
  return inside.length === 1 ? boxOf(inside[0], gang) : root;
}

/** Every box without boxes in it. @param {Box} root @returns {Box[]} */
export const leaves = (root) => root.boxes.length ? root.boxes.flatMap(leaves) : [root];

/** @returns {Box} */
function box(levels, depth, path, nodes, marks) {
  const groups = new Map();
  if (depth < levels.length) {
    for (const node of nodes) {
      const name = node.path[depth];
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(node);
    }
  }
  const boxes = [...groups].map(([name, members]) => box(levels, depth + 1, [...path, name], members, marks));
  const level = depth ? levels[depth - 1] : "";
  const total = (pick) => nodes.reduce((sum, node) => sum + pick(node), 0);
  return {
    key: `box/${JSON.stringify(path)}`,
    level,
    title: depth ? titled(level, path[depth - 1]) : "All nodes",
    path,
    boxes,
    nodes: boxes.length ? [] : nodes,
    all: nodes,
    cells: total((node) => node.cells),
    free: total((node) => node.closed ? 0 : node.free),
    ours: total((node) => node.ours),
    others: total((node) => node.others),
    closed: total((node) => node.closed ? 1 : 0),
    gangs: new Set(nodes.flatMap((node) => node.runs.map((run) => run.gang))),
    mark: marks.get(JSON.stringify(path)) ?? null,
  };
}

/** The domains that a plan's verdict names, by their path on this floor; the plan's topology has levels that no box shows, too.
 * @returns {Map<string, string>} */
function marksOf(plan, levels) {
  const names = plan.report.topology.levels.map((level) => level.name);
  const shownPath = (path) => path.filter((_name, depth) => levels.includes(names[depth]));
  return new Map(plan.floor.marks.map(([path, mark]) => [JSON.stringify(shownPath(path)), mark]));
}

/** Names in natural order, nodes without a level last. */
function byPath(one, two) {
  for (let depth = 0; depth < one.length; depth += 1) {
    if (one[depth] === two[depth]) continue;
    if (one[depth] === null) return 1;
    if (two[depth] === null) return -1;
    return natural(one[depth], two[depth]);
  }
  return 0;
}

/** @returns {Map<string, Run[]>} by node */
function runsOf(state, gangs, plan) {
  const found = new Map();
  const taken = new Set();
  const add = (node, run) => {
    if (!found.has(node)) found.set(node, []);
    found.get(node).push(run);
    taken.add(place(run, node));
  };
  for (const [key, pod] of Object.entries(state.pods)) {
    const gang = gangs.get(pod.gang);
    const role = gang?.roles.find((each) => each.name === pod.role);
    if (pod.node && role) add(pod.node, run(key, pod, role, gang.units.length > 1));
  }
  for (const pod of plan?.floor?.pods ?? []) {
    const planned = { ...pod, gang: pod.workload, state: "planned", reason: "", draining: false };
    const role = plan.floor.roles.find((each) => each.workload === pod.workload && each.role === pod.role);
    if (role && !taken.has(place(planned, pod.node))) add(pod.node, run(`plan:${pod.workload}/${pod.unit}/${pod.role}/${pod.replica}/${pod.index}`, planned, role, several(plan)));
  }
  for (const each of found.values()) each.sort((one, two) => natural(`${one.gang} ${one.tag} ${one.index}`, `${two.gang} ${two.tag} ${two.index}`));
  return found;
}

const several = (plan) => new Set(plan.floor.pods.map((pod) => pod.unit)).size > 1;
const place = (run, node) => [run.gang, run.unit, run.role, run.replica, run.index, node].join(" ");

/** @returns {Run} */
function run(key, pod, role, units) {
  const tag = units ? `${role.letter}${pod.unit}.${pod.replica}` : `${role.letter}${pod.replica}`;
  return {
    pod: key, gang: pod.gang, role: pod.role, unit: pod.unit, replica: pod.replica, index: pod.index, ink: role.ink % 8, shade: pod.replica % 3,
    tag, cells: pod.cells, state: pod.state, reason: pod.reason, draining: pod.draining, planned: pod.state === "planned",
  };
}

/** Cells of gangs that the filters leave out, by node. @returns {Map<string, number>} */
function strangers(state, gangs) {
  const found = new Map();
  for (const pod of Object.values(state.pods)) {
    if (pod.node && !gangs.has(pod.gang)) found.set(pod.node, (found.get(pod.node) ?? 0) + pod.cells);
  }
  return found;
}
