/** What a domain or a node is, in words: names for screen readers, lines for the tip. */

import { SIGNS, count, many } from "./words.js";

/** @param {any} box @param {any} state */
export function boxName(box, state) {
  const closed = box.closed ? `, ${many(box.closed, "node")} closed` : "";
  const mark = box.mark ? `, ${box.mark}` : "";
  return `${box.title}: ${many(box.all.length, "node")}, ${free(box, state)}${closed}${mark}`;
}

/** @param {any} box @param {any} state */
export const free = (box, state) => `${count(box.free * state.scale)} of ${count(box.cells * state.scale)} ${state.device} free`;

/** @param {any} node @param {any} state */
export function nodeName(node, state) {
  const pods = node.runs.map((run) => `${runName(run)}, ${runState(run)}`);
  const others = node.others ? [`${count(node.others * state.scale)} ${state.device} of other pods`] : [];
  return [`${node.name}: ${node.closed ?? free(node, state)}`, ...pods, ...others].join("; ");
}

/** `default/llama prefill replica 0 pod 1` @param {any} run */
export const runName = (run) => `${run.gang}${run.unit ? ` unit ${run.unit}` : ""} ${run.role} replica ${run.replica} pod ${run.index}`;

/** @param {any} run */
export const runState = (run) => [run.draining ? "draining" : run.state, run.reason].filter(Boolean).join(": ");

/** @param {any} run */
export const sign = (run) => run.planned ? "▢" : run.draining ? "⇥" : SIGNS[run.state] ?? "";
