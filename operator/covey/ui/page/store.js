/** What the page knows: the server's state, and what the viewer chose. Whoever draws subscribes. */

/** Apply a JSON Merge Patch (RFC 7386); null takes a key away. Untouched parts stay the same objects.
 * @param {any} target @param {any} patch @returns {any} */
export function merged(target, patch) {
  if (!isObject(patch)) return patch;
  const result = isObject(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = merged(result[key], value);
  }
  return result;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @typedef {{namespace: string, search: string, gang: string | null, zoom: (string | null)[], table: boolean, plan: any}} Choice */

export class Store {
  /** @type {any} */
  state = null;
  /** @type {Choice} */
  choice = { namespace: "", search: "", gang: null, zoom: [], table: false, plan: null };
  #drawers = [];
  #due = false;

  /** Call `draw` once in a frame in which something has changed.
   * @param {(store: Store) => void} draw */
  subscribe(draw) {
    this.#drawers.push(draw);
  }

  /** @param {any} state */
  replace(state) {
    this.state = state;
    this.#changed();
  }

  /** @param {any} patch */
  patch(patch) {
    this.state = merged(this.state, patch);
    this.#changed();
  }

  /** @param {Partial<Choice>} choice */
  choose(choice) {
    this.choice = { ...this.choice, ...choice };
    this.#changed();
  }

  /** Whether a gang passes the filters. @param {any} gang */
  shows(gang) {
    const { namespace, search } = this.choice;
    return (!namespace || gang.namespace === namespace) && `${gang.namespace}/${gang.name}`.toLowerCase().includes(search.toLowerCase());
  }

  #changed() {
    if (this.#due || this.state === null) return;
    this.#due = true;
    // A page in the background gets no frames; it must know what is announced all the same.
    (document.hidden ? (draw) => setTimeout(draw, 200) : requestAnimationFrame)(() => {
      this.#due = false;
      for (const draw of this.#drawers) draw(this);
    });
  }
}
