/** What lies under the pointer or the keyboard's place, in a card beside it. */

import { byId } from "./dom.js";
import { nodeAt } from "./floor-small.js";
import { boxTip, nodeTip } from "./floor-rows.js";

const GAP = 14;

/** @param {import("./floor.js").FloorView} view */
export function startTip(view) {
  const tree = byId("tree"), tip = byId("tip");
  const hide = () => {
    tip.hidden = true;
  };
  tree.addEventListener("pointermove", (event) => {
    const lines = event.pointerType === "touch" ? null : linesAt(event, view);
    if (lines) show(tip, lines, event.clientX, event.clientY);
    else hide();
  });
  tree.addEventListener("pointerleave", hide);
  tree.addEventListener("focusin", (event) => {
    const part = view.parts.get(event.target.dataset?.key);
    if (!part || !event.target.matches(":focus-visible")) return;
    const frame = event.target.getBoundingClientRect();
    show(tip, part.all ? boxTip(part, view) : nodeTip(part, view), frame.left + Math.min(frame.width, 260), frame.top + (part.all ? 30 : frame.height));
  });
  tree.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, { capture: true, passive: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
}

function linesAt(event, view) {
  const item = event.target.closest("[data-key]");
  const part = item && view.parts.get(item.dataset.key);
  if (!part) return null;
  if (!part.all) return nodeTip(part, view, event.target.closest("[data-pod]")?.dataset.pod);
  const picture = event.target.closest(".bits");
  const node = picture && nodeAt(part, picture, event.clientX);
  return node ? nodeTip(node, view) : event.target.closest(".head") ? boxTip(part, view) : null;
}

function show(tip, lines, x, y) {
  tip.replaceChildren(...lines.filter(Boolean));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + GAP + width > globalThis.innerWidth ? Math.max(4, x - GAP - width) : x + GAP;
  const top = y + GAP + height > globalThis.innerHeight ? Math.max(4, y - GAP - height) : y + GAP;
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}
