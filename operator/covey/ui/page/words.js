/** Small phrases: times, counts and names as a person reads them. */

/** `1,234` @param {number} value */
export const count = (value) => value.toLocaleString("en-US");

/** `1 node`, `36 nodes` @param {number} value @param {string} noun */
export const many = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** A time span in its two largest units: `3 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`. @param {number} seconds */
export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0 s";
  const [name, size] = units[first];
  const lead = `${Math.floor(whole / size)} ${name}`;
  const next = units[first + 1];
  const rest = next ? Math.floor((whole % size) / next[1]) : 0;
  return rest ? `${lead} ${rest} ${next[0]}` : lead;
}

/** How long ago, in seconds, by the server's clock as far as it is known. @param {string} time @param {number} now ms */
export const since = (time, now) => (now - Date.parse(time)) / 1000;

/** `14:03:22`, with the day where it is not today. @param {string} time */
export function clock(time) {
  const date = new Date(time);
  const hour = date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  const today = date.toDateString() === new Date().toDateString();
  return today ? hour : `${date.toLocaleDateString(undefined, { day: "numeric", month: "short" })} ${hour}`;
}

/** `operator covey-operator-abc leads since 14:03:22 (0.9.0)`, with the namespaces that it watches where it does not watch all. */
export const leaderWords = (leader) => {
  const since = leader.since ? ` since ${clock(leader.since)}` : "", version = leader.version ? ` (${leader.version})` : "";
  const watched = leader.namespaces.length ? `, watches ${leader.namespaces.join(", ")}` : "";
  return `${leader.process} ${leader.holder} leads${since}${version}${watched}`;
};

/** The domain with its level, which is left out where the name begins with it. @param {string} level @param {string | null} name */
export const titled = (level, name) => name === null ? `no ${level}` : name.startsWith(level) ? name : `${level} ${name}`;

/** Natural order: `rack-2` before `rack-10`. */
export const natural = new Intl.Collator("en", { numeric: true }).compare;

/** States as words and signs; the signs are those of `covey status`. */
export const SIGNS = { ready: "✓", serving: "✓", starting: "◐", held: "◆", waiting: "○", failed: "✗" };

/** CamelCase as words: `QuotaExceeded` → `Quota exceeded`. @param {string} reason */
export const spaced = (reason) => {
  const words = reason.replace(/([a-z0-9])([A-Z])/gu, "$1 $2").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
};
