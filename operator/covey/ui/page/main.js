/** Starts the page: connects, and draws what arrives. */

import { announcer } from "./announce.js";
import { byId, write } from "./dom.js";
import { FloorView, drawFloor } from "./floor.js";
import { startFloor } from "./floor-keys.js";
import { gangDrawer } from "./gang.js";
import { drawGangs } from "./gangs.js";
import { drawNotices } from "./notices.js";
import { startPlan } from "./plan.js";
import { connection, redeem, signIn, startFilters, startKeys, startTabs, startTheme } from "./shell.js";
import { Store } from "./store.js";
import { Follower, Server } from "./stream.js";
import { startTip } from "./tip.js";
import { byGang, drawWaiting, tick } from "./waiting.js";
import { leaderWords, span } from "./words.js";

const store = new Store(), server = new Server(), view = new FloorView();
let skew = 0, countdown = 0;

/** The server's clock, in ms. */
const now = () => Date.now() + skew;

const follower = new Follower(server, {
  snapshot: (state) => {
    skew = Date.parse(state.now) - Date.now();
    byId("main").hidden = false;
    store.replace(state);
  },
  change: (patch) => store.patch(patch),
  up: () => {
    clearInterval(countdown);
    byId("retry").hidden = true;
    byId("sign-out").hidden = !server.signedIn || store.state.viewer.mode !== "token";
    connection("live", "Live");
  },
  down: (seconds, why) => {
    const end = Date.now() + seconds * 1000;
    const say = () => connection("down", `${why}. Trying again in ${span(Math.max(1, (end - Date.now()) / 1000))}`);
    clearInterval(countdown);
    say();
    countdown = setInterval(say, 5000);
    byId("retry").hidden = false;
  },
  signIn: (refusal) => {
    clearInterval(countdown);
    byId("retry").hidden = true;
    byId("sign-out").hidden = true;
    return signIn(server, refusal);
  },
});

function drawFrame({ state }) {
  write(byId("cluster"), state.cluster);
  write(byId("viewer"), state.viewer.name ? `Seen as ${state.viewer.name}` : "");
  write(byId("versions"), [`Covey ${state.version}`, state.server && `Kubernetes ${state.server}`, state.topology.name && `topology ${state.topology.name}`, ...state.topology.constant, ...state.leaders.map(leaderWords)].filter(Boolean).join(" · "));
  const waiting = byGang(state, () => true, now()).length;
  document.title = `${waiting ? `(${waiting}) ` : ""}Covey${state.cluster ? ` · ${state.cluster}` : ""}`;
}

startTheme();
startTabs();
startKeys(store);
startFilters(store, follower);
startFloor(store, view);
startTip(view);
startPlan(store, server);
store.subscribe(drawFrame);
store.subscribe(drawNotices);
store.subscribe(() => drawWaiting(store, now));
store.subscribe(drawGangs);
store.subscribe(() => drawFloor(store, view));
store.subscribe(gangDrawer(store, server));
store.subscribe(announcer());
setInterval(() => tick(store, now), 1000);
new ResizeObserver(() => store.choose({})).observe(byId("floor"));
byId("retry").addEventListener("click", () => follower.again());
byId("sign-out").addEventListener("click", () => {
  server.signOut();
  follower.again();
});
// A further link of `covey ui` for the same address only changes what stands behind the #.
globalThis.addEventListener("hashchange", () => location.hash.startsWith("#code=") && location.reload());

await redeem(server);
connection("connecting", "Connecting");
await follower.run();
