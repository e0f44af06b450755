/** Elements from values. Text is always text: nothing here, or in any other module, parses HTML. */

/** @typedef {Element | string | number | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";

/** The element with this id, which the page has.
 * @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/** An HTML element. Functions among the properties are listeners (`onclick`), the others attributes; null leaves one out.
 * @param {string} name @param {Record<string, any>} [properties] @param {...(Child | Child[])} children @returns {any} */
export function h(name, properties = {}, ...children) {
  return filled(document.createElement(name), properties, children);
}

/** The same for SVG.
 * @param {string} name @param {Record<string, any>} [properties] @param {...(Child | Child[])} children @returns {any} */
export function svg(name, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, name), properties, children);
}

/** @param {Element} element @param {Record<string, any>} properties @param {(Child | Child[])[]} children */
function filled(element, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else set(element, key, value);
  }
  element.append(...children.flat(2).filter((child) => child || child === 0).map((child) => typeof child === "object" ? child : String(child)));
  return element;
}

/** Set an attribute only if it changes; null, undefined and false take it away.
 * @param {Element} element @param {string} name @param {any} value */
export function set(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** Write text only if it changes, so that a selection and a screen reader are left alone.
 * @param {Element} element @param {string} text */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make the children of an element those of a list: what stays keeps its element, and with it focus and scroll.
 *
 * An element is made anew only when its signature differs.
 * @template T
 * @param {Element} parent @param {T[]} items
 * @param {{key: (item: T) => string, signature: (item: T) => string, make: (item: T) => any}} how */
export function reconcile(parent, items, how) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const after = items.map((item) => {
    const key = how.key(item), signature = how.signature(item), old = before.get(key);
    if (old && old.signature === signature) return old;
    const made = how.make(item);
    made.dataset.key = key;
    made.signature = signature;
    if (old) replace(old, made);
    return made;
  });
  const kept = new Set(after);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  after.forEach((element, place) => {
    if (parent.children[place] !== element) parent.insertBefore(element, parent.children[place] ?? null);
  });
}

/** Replace an element without losing the keyboard's place in it, or closing what was opened. */
function replace(old, made) {
  if (old.querySelector("details[open]")) made.querySelector("details")?.setAttribute("open", "");
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  old.replaceWith(made);
  if (focus === null) return;
  const again = focus === old ? made : made.querySelector(`[data-focus="${CSS.escape(focus.dataset.focus ?? "")}"]`);
  again?.focus({ preventScroll: true });
}
