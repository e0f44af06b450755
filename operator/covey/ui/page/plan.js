/** The plan of a pasted manifest: drawn on the floor, and in words. */

import { byId, h } from "./dom.js";
import { Refusal, sentence } from "./stream.js";
import { many } from "./words.js";

/** @param {import("./store.js").Store} store @param {import("./stream.js").Server} server */
export function startPlan(store, server) {
  const manifest = byId("manifest"), fault = byId("plan-error"), result = byId("plan-result");
  const clear = () => {
    fault.textContent = "";
    manifest.removeAttribute("aria-invalid");
    result.replaceChildren();
    store.choose({ plan: null });
  };
  byId("plan-clear").addEventListener("click", () => {
    clear();
    manifest.value = "";
    manifest.focus();
  });
  manifest.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("plan-form").requestSubmit();
  });
  byId("plan-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    clear();
    if (!manifest.value.trim()) {
      fault.textContent = "Paste a manifest first.";
      manifest.focus();
      return;
    }
    result.replaceChildren(h("p", { class: "dim" }, "Planning"));
    const where = store.choice.namespace ? `?namespace=${encodeURIComponent(store.choice.namespace)}` : "";
    try {
      const plan = await server.json(`api/plan${where}`, { method: "POST", body: manifest.value, headers: { "Content-Type": "application/yaml" } });
      result.replaceChildren(...answer(plan));
      store.choose({ plan, gang: null, zoom: [] });
    } catch (error) {
      result.replaceChildren();
      fault.textContent = error instanceof Refusal ? error.faults.map(sentence).join("\n") : "The server does not answer.";
      if (error instanceof Refusal && error.status === 400) manifest.setAttribute("aria-invalid", "true");
    }
  });
}

const WORDS = { 0: "It fits.", 3: "It does not fit.", 4: "Not known: the search met its limit." };

function answer(plan) {
  const { report } = plan;
  return [
    h("p", { class: `verdict v${plan.status}` }, WORDS[plan.status] ?? ""),
    ...plan.sentences.map((words) => h("p", { class: "message bad" }, words)),
    ...report.warnings.map((words) => h("p", { class: "dim" }, words)),
    ...plan.denied.map((each) => h("p", { class: "dim" }, `Not taken into account: ${each.message}`)),
    h("ul", { class: "cards" }, report.workloads.slice(0, 40).map((workload) => card(workload, plan))),
    report.workloads.length > 40 ? h("p", { class: "dim" }, `and ${many(report.workloads.length - 40, "workload")} more`) : null,
  ].filter(Boolean);
}

function card(workload, plan) {
  const key = `${workload.namespace}/${workload.name}`;
  const letters = new Map(plan.floor.roles.filter((role) => role.workload === key).map((role) => [role.role, role]));
  return h("li", { class: "card" },
    h("h3", {}, key, h("span", { class: `word ${workload.verdict === "Admitted" ? "good" : "bad"}` }, workload.verdict)),
    ...workload.units.slice(0, 16).map((unit) => h("div", {},
      workload.units.length > 1 ? h("h4", {}, `Unit ${unit.index}`) : null,
      unit.placement.length ? h("p", { class: "dim" }, `In ${unit.placement.map((each) => each.domain.startsWith(each.level) ? each.domain : `${each.level} ${each.domain}`).join(", ")}`) : null,
      h("ul", { class: "plan-roles" }, unit.roles.map((role) => h("li", {},
        letters.has(role.name) ? h("span", { class: `letter i${letters.get(role.name).ink % 8}`, "aria-hidden": "true" }, letters.get(role.name).letter) : null,
        `${role.name}: ${role.admitted} of ${many(role.replicas, "replica")}, minimum ${role.minReplicas}`))),
      unit.preferred?.some((each) => !each.achieved) ? h("p", { class: "dim" }, unit.preferred.filter((each) => !each.achieved).map((each) => `${each.scope}: ${each.level} not reached${each.reached ? `, ${each.reached} was` : ""}`).join("; ")) : null)));
}
