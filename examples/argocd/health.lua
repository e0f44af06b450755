-- How Argo CD is to read a DisaggregatedInference. Without it Argo CD says nothing of its health: put this text under
-- resource.customizations.health.inference.covey.dev_DisaggregatedInference in the ConfigMap argocd-cm.
local found = {}
if obj.status ~= nil and obj.status.observedGeneration == obj.metadata.generation then
  for _, condition in ipairs(obj.status.conditions or {}) do
    found[condition.type] = condition
  end
end
local ready, stalled = found.Ready, found.Stalled
if ready == nil then
  return { status = "Progressing", message = "the operator has not seen this spec yet" }
elseif stalled ~= nil and stalled.status == "True" then
  return { status = "Degraded", message = stalled.message }
elseif ready.status ~= "True" then
  return { status = "Progressing", message = ready.message }
elseif ready.reason == "Suspended" then
  return { status = "Suspended", message = ready.message }
end
return { status = "Healthy", message = ready.message }
