/** Everything around the content: tabs, filters, colours, help and shortcuts, the connection, signing in. */

import { byId, h, set, write } from "./dom.js";
import { out } from "./floor-keys.js";
import { sentence } from "./stream.js";

const KEYS = [
  ["f", "Go to the floor", () => byId("floor").focus()],
  ["w", "Go to what waits", () => (byId("waiting").hidden ? byId("gangs") : byId("waiting")).focus()],
  ["g", "Go to the gangs", () => byId("gangs").focus()],
  ["s", "Go to the story of the selected gang", () => byId("gang").focus()],
  ["/", "Filter by name", () => byId("search").focus()],
  ["p", "Plan a manifest", () => openTab("plan")],
  ["n", "Back to now", () => openTab("now")],
  ["t", "Show the floor as a table, or drawn", () => byId("as-table").click()],
  ["z", "Zoom to the selected gang", () => byId("zoom-gang").click()],
  ["?", "This help", () => byId("help").showModal()],
];
const OTHERS = [["← ↑ → ↓", "In the floor: out, before, in, next"], ["Enter", "Open a domain, select the gang on a node"], ["Esc", "Close, zoom out, select nothing"]];

/** A choice that is kept for the next visit; a browser that keeps nothing is no trouble. */
const kept = {
  get(key) {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  },
  set(key, value) {
    try {
      localStorage.setItem(key, value);
    } catch { /* It is only for comfort. */ }
  },
};

/** @param {import("./store.js").Store} store */
export function startKeys(store) {
  const help = byId("help"), single = byId("single-keys");
  byId("help-keys").append(...[...OTHERS, ...KEYS].map(([key, words]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, words))));
  single.checked = kept.get("covey-keys") !== "off";
  single.addEventListener("change", () => kept.set("covey-keys", single.checked ? "on" : "off"));
  byId("help-open").addEventListener("click", () => help.showModal());
  byId("help-close").addEventListener("click", () => help.close());
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const typing = event.target.matches("input, textarea, select");
    if (event.key === "Escape") escape(event, store, typing);
    const found = !typing && single.checked && !byId("main").hidden && KEYS.find(([key]) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found[2]();
  });
}

function escape(event, store, typing) {
  if (typing && event.target.type === "search" && event.target.value) return; // the browser empties it
  if (typing) event.target.blur();
  else if (store.choice.gang !== null) store.choose({ gang: null });
  else out(store);
}

/** @param {import("./store.js").Store} store @param {import("./stream.js").Follower} follower */
export function startFilters(store, follower) {
  const search = byId("search"), namespace = byId("namespace");
  search.addEventListener("input", () => store.choose({ search: search.value.trim() }));
  const chosen = () => {
    const value = namespace.value.trim();
    if (value === store.choice.namespace) return;
    store.choose({ namespace: value, gang: null });
    const whole = store.state && !follower.namespace && !store.state.denied.some((each) => each.namespace === null && each.resource !== "nodes");
    if (whole) return;
    follower.namespace = value;
    follower.again();
  };
  namespace.addEventListener("change", chosen);
  store.subscribe(({ state }) => {
    const names = [...new Set([...Object.values(state.gangs).map((gang) => gang.namespace), ...state.viewer.namespaces])].sort();
    const list = byId("namespaces");
    if (list.dataset.names === names.join(" ")) return;
    list.dataset.names = names.join(" ");
    list.replaceChildren(...names.map((name) => h("option", { value: name })));
  });
}

export function startTheme() {
  const theme = byId("theme");
  theme.value = kept.get("covey-theme") ?? "auto";
  const choose = () => set(document.documentElement, "data-theme", theme.value === "auto" ? null : theme.value);
  theme.addEventListener("change", () => {
    kept.set("covey-theme", theme.value);
    choose();
  });
  choose();
}

const TABS = ["now", "plan"];

/** @param {string} name */
export function openTab(name) {
  for (const each of TABS) {
    const tab = byId(`tab-${each}`), open = each === name;
    set(tab, "aria-selected", String(open));
    tab.tabIndex = open ? 0 : -1;
    byId(each).hidden = !open;
  }
  if (name === "plan") byId("manifest").focus();
  else byId(`tab-${name}`).focus();
}

export function startTabs() {
  for (const name of TABS) {
    const tab = byId(`tab-${name}`);
    tab.addEventListener("click", () => openTab(name));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = TABS[(TABS.indexOf(name) + 1) % TABS.length];
      openTab(other);
      byId(`tab-${other}`).focus();
    });
  }
}

/** What the header says of the connection. @param {"live" | "down" | "connecting"} state @param {string} words */
export function connection(state, words) {
  set(byId("connection"), "data-state", state);
  write(byId("connection-words"), words);
}

/** Ask for a token until there is one. @param {import("./stream.js").Server} server @param {import("./stream.js").Refusal} refusal @returns {Promise<void>} */
export function signIn(server, refusal) {
  const why = server.signedIn ? refusal.faults.map(sentence).join(" ") : "";
  server.signOut();
  const section = byId("sign-in"), form = byId("sign-in-form"), token = byId("token");
  const linked = refusal.mode === "kubeconfig";
  byId("sign-in-link").hidden = !linked;
  byId("sign-in-words").hidden = linked;
  byId("sign-in-field").hidden = linked;
  byId("sign-in-error").textContent = why;
  byId("main").hidden = true;
  section.hidden = false;
  connection("down", "Not signed in");
  if (!linked) token.focus();
  return new Promise((resolve) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      server.signIn(token.value.trim());
      token.value = "";
      section.hidden = true;
      resolve();
    }, { once: true });
  });
}

/** A link that `covey ui` printed carries a code, which is good once. @param {import("./stream.js").Server} server */
export async function redeem(server) {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    const session = await server.json("api/session", { method: "POST", body: JSON.stringify({ code }), headers: { "Content-Type": "application/json" } });
    server.signIn(session.token);
  } catch {
    // A used link of a tab that is still signed in is no fault; else the first request says what is wrong.
  }
}
