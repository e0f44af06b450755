/** The time axis of a story: a bar for the life of each replica, a mark for each event.
 *
 * Gangs start within seconds and then run for days; so quiet times are drawn short and cut, with a sign where that is.
 */

import { svg } from "./dom.js";
import { clock, span } from "./words.js";

const LANE = 15, TOP = 30, LEFT = 116, MOST = 24, QUIET = 26;

/** @param {any} story @param {number} width @returns {SVGElement} */
export function axis(story, width) {
  const lanes = story.lanes.slice(0, MOST), left = width < 520 ? 74 : LEFT;
  const scale = timeScale(moments(story, lanes), left, width - 14);
  const high = TOP + lanes.length * LANE + 26;
  const picture = svg("svg", { class: "time", width, height: high, viewBox: `0 0 ${width} ${high}`, role: "img", "aria-label": summary(story) });
  picture.append(...ticks(scale, high), ...scale.cuts.map((x) => cut(x, high)));
  lanes.forEach((lane, place) => picture.append(...bars(lane, TOP + place * LANE, scale, left, story.now, several(lanes))));
  picture.append(...atOnce(story.events).map((events) => mark(events, scale.at(Date.parse(events[0].time)))));
  if (story.lanes.length > MOST) picture.append(svg("text", { x: 0, y: high - 6, class: "dim" }, `and ${story.lanes.length - MOST} more replicas`));
  return picture;
}

const several = (lanes) => lanes.some((lane) => lane.unit > 0);

function summary(story) {
  const first = story.events[0];
  return `Time axis: ${story.events.length} events${first ? ` since ${clock(first.time)}` : ""}, ${story.lanes.length} replicas. The list below says the same.`;
}

function moments(story, lanes) {
  const times = [story.now, ...story.events.map((event) => event.time), ...lanes.flatMap((lane) => [lane.created, lane.placed, lane.bound, lane.ready, lane.draining])];
  return [...new Set(times.filter(Boolean).map((time) => Date.parse(time)))].sort((one, two) => one - two);
}

/** Places on the axis. A second and an hour between two moments differ, but only as their logarithms do.
 * @param {number[]} times in ms, in order @param {number} from @param {number} to */
export function timeScale(times, from, to) {
  const gaps = times.slice(1).map((time, place) => Math.log1p((time - times[place]) / 1000) + 0.15);
  const total = gaps.reduce((sum, gap) => sum + gap, 0) || 1;
  const places = [from];
  for (const gap of gaps) places.push(places[places.length - 1] + gap / total * (to - from));
  const at = (time) => {
    const next = times.findIndex((each) => each >= time);
    if (next <= 0) return next ? to : from;
    const share = (time - times[next - 1]) / (times[next] - times[next - 1]);
    return places[next - 1] + share * (places[next] - places[next - 1]);
  };
  const cuts = gaps.flatMap((_gap, place) => times[place + 1] - times[place] > 600_000 && places[place + 1] - places[place] > QUIET ? [(places[place] + places[place + 1]) / 2] : []);
  return { at, cuts, times, places };
}

function ticks(scale, high) {
  const found = [];
  let free = -Infinity;
  const start = scale.times[0];
  scale.times.forEach((time, place) => {
    const x = scale.places[place], last = place === scale.times.length - 1;
    if (x < free && !last) return;
    const words = place === 0 ? clock(new Date(time).toISOString()) : last ? "now" : `+${span((time - start) / 1000)}`;
    const wide = words.length * 6 + 16;
    if (!last && scale.places[scale.places.length - 1] - x < wide + 24) return;
    found.push(svg("path", { class: "tick", d: `M${x} ${TOP - 6}V${high - 20}` }));
    found.push(svg("text", { x, y: high - 6, class: `dim${last ? " end" : ""}` }, words));
    free = x + wide;
  });
  return found;
}

const cut = (x, high) => svg("path", { class: "cut", d: `M${x - 4} ${high - 16}l3 -8M${x + 1} ${high - 16}l3 -8` });

/** `0 · prefill 1`; where that is too long the role is cut, since the numbers tell lanes apart. Pure.
 * @param {any} lane @param {boolean} units @param {number} most letters @returns {string} */
export function laneName(lane, units, most) {
  const head = units ? `${lane.unit} · ` : "", tail = ` ${lane.replica}`, room = Math.max(2, most - head.length - tail.length);
  return `${head}${lane.role.length > room ? `${lane.role.slice(0, room - 1)}…` : lane.role}${tail}`;
}

/** Waiting, placed, starting, ready, draining: a bar whose look changes. */
function bars(lane, y, scale, left, now, units) {
  const name = laneName(lane, units, Math.floor((left - 8) / 6.2));
  const steps = [["waiting", lane.created], ["held", lane.placed], ["starting", lane.bound], ["ready", lane.ready], ["draining", lane.draining]].filter(([, time]) => time);
  const parts = steps.map(([state, time], place) => {
    const from = scale.at(Date.parse(time)), to = scale.at(Date.parse(steps[place + 1]?.[1] ?? now));
    return svg("rect", { class: "life", "data-state": state, x: from, y: y + 2, width: Math.max(1, to - from), height: LANE - 4, rx: 2 });
  });
  return [svg("text", { x: 0, y: y + 11, class: "lane" }, name), ...parts];
}

/** Events by the second, the most telling first: one sign stands for all of a moment. Pure. @param {any[]} events @returns {any[][]} */
export function atOnce(events) {
  const found = new Map();
  for (const event of events) found.set(event.time, [...found.get(event.time) ?? [], event]);
  return [...found.values()].map((each) => each.sort((one, two) => weight(one) - weight(two)));
}

const WEIGHTS = ["failed", "rollout", "evacuation", "ready", "bound", "admitted", "waiting", "draining", "scaled", "created"];
const weight = (event) => event.type === "Warning" ? -1 : (WEIGHTS.indexOf(event.kind) + 1 || WEIGHTS.length + 1);

/** A sign for each kind, told apart by shape. */
function mark(events, x) {
  const [event] = events, y = 12, warning = event.type === "Warning";
  const shapes = {
    created: `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z`,
    admitted: `M${x} ${y - 5}l5 5l-5 5l-5 -5z`,
    bound: `M${x - 4} ${y - 4}h8v8h-8z`,
    ready: `M${x - 5} ${y}l4 4l6 -8`,
    rollout: `M${x - 4} ${y - 5}l8 5l-8 5z`,
  };
  const kind = warning ? "warning" : event.kind;
  const shape = warning ? `M${x} ${y - 5}l5.5 10h-11z` : shapes[event.kind] ?? `M${x - 3} ${y}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z`;
  return svg("path", { class: "mark", "data-kind": kind, d: shape }, svg("title", {}, events.map((each) => `${clock(each.time)} ${each.reason}: ${each.message}`).join("\n")));
}
