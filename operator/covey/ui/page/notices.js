/** Who does not look after the gangs, what the viewer may not see, and what the server warns of. */

import { byId, h, reconcile } from "./dom.js";

/** @param {import("./store.js").Store} store */
export function drawNotices(store) {
  const { absences, denied, warnings } = store.state;
  const items = [
    ...(absences.length ? [{ kind: "absences", title: absences[0].meaning, lines: absences.map((each) => `${each.meaning} ${each.remedy}`) }] : []),
    ...(denied.length ? [{ kind: "denied", title: "Not everything is shown: your credentials may not read it all.", lines: denied.map(deniedWords) }] : []),
    ...(warnings.length ? [{ kind: "warnings", title: warnings.length === 1 ? "A warning about the cluster" : `${warnings.length} warnings about the cluster`, lines: warnings }] : []),
  ];
  reconcile(byId("notices"), items, {
    key: (item) => item.kind,
    signature: (item) => JSON.stringify(item),
    make: (item) => h("details", { class: `notice ${item.kind}` }, h("summary", { "data-focus": "summary" }, item.title),
      h("ul", {}, item.lines.map((line) => h("li", {}, line)))),
  });
}

const deniedWords = (each) => `${each.resource}${each.namespace === null ? "" : ` in ${each.namespace}`}: ${each.message}`;
