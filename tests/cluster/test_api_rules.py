"""What the API server refuses, and what it says then: where, what is wrong, what to do."""

from typing import Any

import pytest
from kubernetes.client import ApiException

from builders.manifests import (
    GONE,
    Object,
    changed,
    collection,
    composite,
    inference,
    pod_group,
    preemption,
    queue,
    refusals,
    role,
    template,
    topology,
    workload,
)
from localcluster import Cluster, status_of

Edits = dict[str, Any]

LABEL_FORM = "use lower-case letters, digits and -, with a letter or digit at both ends"
NAME_FORM = "the name is part of labels and of host names: use at most 63 lower-case letters, digits and -"
NO_GANG = "no role has minReplicas > 0, so nothing would make up the gang: set it on at least one role"
TOO_MANY_PODS = (
    "more than 20000 pods (units times replicas times size, over all roles): lower one of these, or split the units "
    "over several resources"
)
SAME_LEVEL = "preferred is the same level as required and adds nothing: remove it, or name a finer level"
NO_SUCH_DEPENDENCY = "dependsOn names a role that is not in spec.roles: correct the name or add the role"
OWN_ANNOTATIONS = (
    "annotations under covey.dev are Covey's own except covey.dev/restart-ignored-containers, covey.dev/domain-labels: remove "
    "them, or use a prefix of yours"
)
NO_MINIMUM = (
    "dependsOn names a role with minReplicas 0, for which nobody would wait: set its minReplicas to 1 or more, or remove "
    "the dependency"
)
ELSEWHERE = "set spec.priorityClassName of the DisaggregatedInference instead"
ELASTIC = {"level": "rack", "names": ["r7"], "nodes": 4, "allocatable": {"pods": "110"}}
NO_SUCH_LEVEL = "elastic names a level that is not in levels, or lies within its own: use names of levels"
NO_VALUE = "elastic has a name that is no value of a label: use letters, digits, -, _ and ., with a letter or digit at both ends"
NO_QUANTITY = "elastic has an allocatable amount that is no quantity: write one such as 8 or 64Gi"
CHOOSES = "the scheduler chooses the node; use nodeSelector or affinity to restrict the choice"
SCHEDULING_POLICY = (
    "exactly one of gang and basic must be set: gang for members without which nothing starts, basic for others"
)
LEVEL_OR_KEY = "exactly one of level and key must be set: remove one, or add one"
TEMPLATES = (
    "exactly one of podGroupTemplates and compositePodGroupTemplates must have items: "
    "put groups without a parent in the one, trees in the other"
)
CHILDREN = "a composite needs at least one child: add podGroupTemplates or compositePodGroupTemplates"

NEED_COHORT = "borrow and lend need a cohort, whose queues lend to each other: name one, or remove them"
LENDS_TOO_MUCH = "lend is more than nominal: nobody lends more than there is, so lower lend or raise nominal"
SAME_NODES = "two flavors select the same nodes, of which the second would get none: merge them"
POOL = {"targetPorts": [{"number": 8000}], "endpointPickerRef": {"name": "epp", "port": {"number": 9002}}}
AMOUNT, AMOUNTS = "spec.flavors.0.resources.0", "spec.flavors[0].resources[0]"

PORT = {"name": "a", "port": 80}
ROLE = "spec.roles[0]"
POD = f"{ROLE}.template.spec"
#: Edits of a good DisaggregatedInference; where the API server points; what it says.
BAD_INFERENCES: list[tuple[Edits, str, str]] = [
    ({"metadata.name": "a" * 64}, "metadata.name", NAME_FORM),
    ({"metadata.name": "my.llm"}, "metadata.name", NAME_FORM),
    ({"spec.replicas": 1000}, "spec.replicas", "spec.replicas in body should be less than or equal to 999"),
    ({"spec.replicas": -1}, "spec.replicas", "spec.replicas in body should be greater than or equal to 0"),
    ({"spec.backend": "Slurm"}, "spec.backend", 'supported values: "Auto", "Extender", "Kubernetes", "Volcano"'),
    ({"spec.roles": GONE}, "spec.roles", "Required value"),
    ({"spec.roles": []}, "spec.roles", "spec.roles in body should have at least 1 items"),
    (
        {"spec.roles": [role(f"r{index}") for index in range(17)]},
        "spec.roles",
        "Too many: 17: must have at most 16 items",
    ),
    ({f"spec.roles.{index}.minReplicas": 0 for index in range(3)}, "spec.roles", NO_GANG),
    (
        {"spec.replicas": 999, "spec.roles.0.replicas": 9999, "spec.roles.0.size": 999},
        "spec.roles",
        TOO_MANY_PODS,
    ),
    ({"spec.replicas": 20, "spec.roles": [role("r", replicas=1001)]}, "spec.roles", TOO_MANY_PODS),
    ({"spec.roles.0.name": "decode"}, "spec.roles[1]", 'Duplicate value: {"name":"decode"}'),
    ({"spec.roles.0.name": "Prefill"}, f"{ROLE}.name", LABEL_FORM),
    ({"spec.roles.0.name": "p" * 21}, f"{ROLE}.name", "Too long: may not be more than 20 bytes"),
    ({"spec.roles.0.replicas": 10000}, f"{ROLE}.replicas", "should be less than or equal to 9999"),
    ({"spec.roles.0.size": 0}, f"{ROLE}.size", "should be greater than or equal to 1"),
    ({"spec.roles.0.size": 1000}, f"{ROLE}.size", "should be less than or equal to 999"),
    (
        {"spec.roles.0.minReplicas": 5},
        f"{ROLE}.minReplicas",
        "minReplicas is greater than replicas: lower minReplicas or raise replicas",
    ),
    ({f"spec.roles.{index}.replicas": 0 for index in range(3)}, "spec.roles", NO_GANG),
    (
        {"spec.roles.0.network": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "TCP"}]}},
        f"{ROLE}.network.ports",
        "two names for one port, which a Service cannot have: remove one, or give it another port or protocol",
    ),
    (
        {"spec.roles.0.network": {"service": {}}},
        f"{ROLE}.network.service",
        "a Service with a cluster IP needs a port: name one in ports, or remove service",
    ),
    (
        {"spec.roles.0.network": {"metadata": {"labels": {"team": "search"}}}},
        f"{ROLE}.network.metadata",
        "the role has no Service of its own: name a port in ports, or remove metadata",
    ),
    (
        {"spec.roles.0.network": {"ports": [PORT], "metadata": {"labels": {"covey.dev/inference": "other"}}}},
        f"{ROLE}.network.metadata.labels",
        "labels under covey.dev are Covey's own: remove them, or use a prefix of yours",
    ),
    (
        {"spec.roles.0.network": {"ports": [PORT], "metadata": {"annotations": {"x.covey.dev/applied": "0"}}}},
        f"{ROLE}.network.metadata.annotations",
        "annotations under covey.dev are Covey's own: remove them, or use a prefix of yours",
    ),
    ({"spec.roles.0.template": GONE}, f"{ROLE}.template", "Required value"),
    ({"spec.roles.0.template.spec.containers": GONE}, f"{POD}.containers", "Required value"),
    ({"spec.roles.0.template.spec.containers": []}, f"{POD}.containers", "should have at least 1 items"),
    ({"spec.roles.0.template.spec.containers": [{"image": "x"}]}, f"{POD}.containers[0].name", "Required value"),
    (
        {"spec.roles.0.template.spec.nodeName": "node-1"},
        f"{POD}.nodeName",
        f"nodeName is Covey's own: remove it; {CHOOSES}",
    ),
    (
        {"spec.roles.0.template.spec.schedulerName": "default-scheduler"},
        f"{POD}.schedulerName",
        "schedulerName is Covey's own: remove it; set spec.schedulerName of the DisaggregatedInference instead",
    ),
    (
        {"spec.roles.0.template.spec.schedulingGates": [{"name": "example.com/wait"}]},
        f"{POD}.schedulingGates",
        "schedulingGates is Covey's own: remove it; Covey gates its pods itself",
    ),
    (
        {"spec.roles.0.template.spec.schedulingGroup": {"podGroupName": "other"}},
        f"{POD}.schedulingGroup",
        "schedulingGroup is Covey's own: remove it; Covey puts its pods into their groups itself",
    ),
    (
        {"spec.roles.0.template.spec.priorityClassName": "high"},
        f"{POD}.priorityClassName",
        f"priorityClassName is Covey's own: remove it; {ELSEWHERE}",
    ),
    (
        {"spec.roles.0.template.spec.priority": 5},
        f"{POD}.priority",
        f"priority is Covey's own: remove it; {ELSEWHERE}",
    ),
    (
        {"spec.roles.0.template.spec.hostname": "me"},
        f"{POD}.hostname",
        "hostname is Covey's own: remove it; Covey gives every pod the name <unit>-<role>-<replica>-<index>",
    ),
    (
        {"spec.roles.0.template.spec.subdomain": "here"},
        f"{POD}.subdomain",
        "subdomain is Covey's own: remove it; Covey names its headless Service itself",
    ),
    (
        {"spec.roles.0.leaderTemplate": template(nodeName="node-1")},
        f"{ROLE}.leaderTemplate.spec.nodeName",
        f"nodeName is Covey's own: remove it; {CHOOSES}",
    ),
    (
        {"spec.roles.0.template.metadata.labels": {"app": "llm", "covey.dev/role": "decode"}},
        f"{ROLE}.template.metadata.labels",
        "labels under covey.dev are Covey's own: remove them, or use a prefix of yours",
    ),
    (
        {"spec.roles.0.template.metadata.annotations": {"scheduling.covey.dev/release": "Timeout"}},
        f"{ROLE}.template.metadata.annotations",
        OWN_ANNOTATIONS,
    ),
    ({"spec.topology": {"required": "block", "preferred": "block"}}, "spec.topology.preferred", SAME_LEVEL),
    ({"spec.topology.required": "Block!"}, "spec.topology.required", LABEL_FORM),
    ({"spec.roles.0.topology": {"required": "rack", "preferred": "rack"}}, f"{ROLE}.topology.preferred", SAME_LEVEL),
    (
        {"spec.proximity": [{"roles": ["prefill", "ghost"], "level": "rack"}]},
        "spec.proximity",
        "there is no role ghost: correct the name or add the role",
    ),
    ({"spec.proximity": [{"roles": ["prefill"]}]}, "spec.proximity[0].level", "Required value"),
    (
        {"spec.proximity": [{"roles": ["prefill"], "level": "rack", "mode": "Maybe"}]},
        "spec.proximity[0].mode",
        'supported values: "Required", "Preferred"',
    ),
    (
        {"spec.proximity": [{"roles": ["prefill"], "level": "rack"}] * 9},
        "spec.proximity",
        "Too many: 9: must have at most 8 items",
    ),
    ({"spec.spread": {"mode": "Required"}}, "spec.spread.level", "Required value"),
    (
        {"spec.spread": {"level": "block", "maxPerDomain": 0}},
        "spec.spread.maxPerDomain",
        "should be greater than or equal to 1",
    ),
    ({"spec.gang.timeoutSeconds": 3601}, "spec.gang.timeoutSeconds", "should be less than or equal to 3600"),
    ({"spec.gang.timeoutSeconds": 0}, "spec.gang.timeoutSeconds", "should be greater than or equal to 1"),
    ({"spec.roles.0.dependsOn": [{"role": "ghost", "condition": "Ready"}]}, "spec.roles", NO_SUCH_DEPENDENCY),
    (
        {"spec.roles.0.dependsOn": [{"role": "decode", "condition": "Ready"}], "spec.roles.1.minReplicas": 0},
        "spec.roles",
        NO_MINIMUM,
    ),
    (
        {"spec.roles.0.dependsOn": [{"role": "prefill", "condition": "Ready"}]},
        f"{ROLE}.dependsOn",
        "a role cannot depend on itself: remove it from dependsOn",
    ),
    (
        {"spec.roles.0.scaling": {"mode": "External", "min": 3, "max": 2}},
        f"{ROLE}.scaling.min",
        "min is greater than max: lower min or raise max",
    ),
    (
        {"spec.roles.0.scaling": {"max": 2}},
        f"{ROLE}.scaling.mode",
        "min and max bound what an autoscaler asks for: set mode to External, or remove them",
    ),
    (
        {"spec.roles.0.scaling": {"mode": "Together"}},
        "spec.roles",
        "one role alone has scaling.mode Together: set it on another role too, or set mode to External",
    ),
    (
        {"spec.roles.0.name": "p", "spec.roles.1.name": "d", "spec.compat": {"llmd": "Always"}},
        "spec.compat.llmd",
        "no role serves prefill or decode, so no pod would have llm-d's label: set serves on a role, or remove compat.llmd",
    ),
    (
        {"spec.roles.0.name": "p", "spec.roles.1.name": "d", "spec.rollout": {"routing": "Exclusive"}},
        "spec.rollout.routing",
        "no role serves prefill or decode, so there is nothing to route: set serves on a role, or remove rollout.routing",
    ),
    (
        {"spec.roles.0.update": {"inPlace": "IfPossible"}, "spec.rollout": {"routing": "Exclusive"}},
        "spec.rollout.routing",
        (
            "a pod whose images change in place would answer with the former ones while routers take it for the new "
            "revision: set inPlace to Never, or rollout.routing to Paired"
        ),
    ),
    (
        {"spec.interconnect": {}},
        "spec.interconnect",
        "spec.interconnect and roles with interconnect: true need each other: set both, or remove both",
    ),
    (
        {"spec.roles.0.interconnect": True},
        "spec.interconnect",
        "spec.interconnect and roles with interconnect: true need each other: set both, or remove both",
    ),
    (
        {"spec.roles.0.interconnect": True, "spec.interconnect": {}, "spec.backend": "Volcano"},
        "spec.interconnect",
        "interconnect is not supported with backend Volcano: use Extender or Kubernetes, or remove it",
    ),
    (
        {"spec.roles.0.interconnect": True, "spec.interconnect": {"exclusive": True}, "spec.backend": "Kubernetes"},
        "spec.interconnect.exclusive",
        "interconnect.exclusive is kept by Covey's own scheduler: use backend Extender, or remove it",
    ),
    (
        {"spec.roles.0.interconnect": True, "spec.interconnect": {"exclusive": True, "scope": "Replica"}},
        "spec.interconnect.exclusive",
        (
            "cliques are kept from other units, not from replicas of the same one: set scope to Unit and make each replica "
            "a unit, or remove exclusive"
        ),
    ),
    (
        {"spec.roles.0.name": "p", "spec.roles.1.name": "d", "spec.routing": {"pool": POOL}},
        "spec.routing.pool",
        (
            "an InferencePool selects by equal labels, so it has the pods of one role or of all of them: set serves on every "
            "role, or on one alone, or remove routing.pool"
        ),
    ),
    (
        {"spec.routing": {"pool": {**POOL, "endpointPickerRef": {"name": "epp", "kind": "Service"}}}},
        "spec.routing.pool.endpointPickerRef.port",
        "an endpoint picker that is a Service has no port: set port.number to that of the Service",
    ),
    (
        {"spec.roles.0.restart": {"backoff": {"baseSeconds": 601}}},
        f"{ROLE}.restart.backoff.baseSeconds",
        "lower the one or raise the other",
    ),
    (
        {"spec.roles.0.update": {"maxSurge": 0, "maxUnavailable": "0%"}},
        f"{ROLE}.update.maxUnavailable",
        "maxSurge and maxUnavailable are both 0, so nothing could be replaced: raise one of them",
    ),
    ({"spec.roles.0.update.maxSurge": "many"}, f"{ROLE}.update.maxSurge", r"should match '^(100|[0-9]{1,2})%$'"),
    (
        {"spec.roles.0.network.ports": [{"name": "http", "port": 70000}]},
        f"{ROLE}.network.ports[0].port",
        "should be less than or equal to 65535",
    ),
]

INNER = "spec.compositePodGroupTemplates.0.compositePodGroupTemplates.0"
INNERMOST = f"{INNER}.compositePodGroupTemplates"
THIRD = "spec" + ".compositePodGroupTemplates[0]" * 3
_LEAF = {"name": "leaf", "schedulingPolicy": {"basic": {}}}
#: A good object, edits of it, where the API server points, what it says.
BAD_OTHERS: list[tuple[Object, Edits, str, str]] = [
    (topology(), {"spec.levels": []}, "spec.levels", "should have at least 1 items"),
    (
        topology(),
        {"spec.levels": [{"name": f"level{index}", "keys": [f"example.com/{index}"]} for index in range(11)]},
        "spec.levels",
        "Too many: 11: must have at most 10 items",
    ),
    (topology(), {"spec.levels.1.keys": []}, "spec.levels[1].keys", "should have at least 1 items"),
    (
        topology(),
        {"spec.levels.1.keys": [f"example.com/{index}" for index in range(9)]},
        "spec.levels[1].keys",
        "Too many: 9: must have at most 8 items",
    ),
    (
        topology(),
        {"spec.levels.1.keys": ["no key"]},
        "spec.levels[1].keys[0]",
        "use a label key, such as topology.example.com/rack",
    ),
    (topology(), {"spec.levels.1.name": "zone"}, "spec.levels[1]", 'Duplicate value: {"name":"zone"}'),
    (
        topology(),
        {"spec.levels.1.keys": ["example.com/rack"]},
        "spec.levels",
        "a label key belongs to two levels, which would make them the same: remove it from one of them",
    ),
    (topology(), {"spec.elastic": [{**ELASTIC, "level": "row"}]}, "spec.elastic", NO_SUCH_LEVEL),
    (topology(), {"spec.elastic": [{**ELASTIC, "within": {"row": "7"}}]}, "spec.elastic", NO_SUCH_LEVEL),
    (topology(), {"spec.elastic": [{**ELASTIC, "within": {"rack": "7"}}]}, "spec.elastic", NO_SUCH_LEVEL),
    (topology(), {"spec.elastic": [{**ELASTIC, "nodes": 0}]}, "spec.elastic[0].nodes", "greater than or equal to 1"),
    (topology(), {"spec.elastic": [{**ELASTIC, "names": ["rack 7"]}]}, "spec.elastic", NO_VALUE),
    (topology(), {"spec.elastic": [{**ELASTIC, "within": {"block": "7-"}}]}, "spec.elastic", NO_VALUE),
    (topology(), {"spec.elastic": [{**ELASTIC, "allocatable": {"pods": "many"}}]}, "spec.elastic", NO_QUANTITY),
    (topology(), {"spec.elastic": [{**ELASTIC, "allocatable": {"pods": "-1"}}]}, "spec.elastic", NO_QUANTITY),
    (topology(), {"spec.elastic": [ELASTIC] * 17}, "spec.elastic", "must have at most 16 items"),
    (composite(), {"spec.schedulingPolicy": GONE}, "spec.schedulingPolicy", "Required value"),
    (composite(), {"spec.schedulingPolicy": {}}, "spec.schedulingPolicy", SCHEDULING_POLICY),
    (composite(), {"spec.schedulingPolicy.basic": {}}, "spec.schedulingPolicy", SCHEDULING_POLICY),
    (
        composite(),
        {"spec.schedulingPolicy.gang.minGroupCount": 0},
        "spec.schedulingPolicy.gang.minGroupCount",
        "should be greater than or equal to 1",
    ),
    (
        composite("llm-0"),
        {"spec.parentCompositePodGroupName": "llm-0"},
        "spec.parentCompositePodGroupName",
        "a group cannot lie below itself: name another group, or none for a root",
    ),
    (
        composite(),
        {"spec.schedulingConstraints.topology": [{"level": "rack", "key": "example.com/rack"}]},
        "spec.schedulingConstraints.topology[0]",
        LEVEL_OR_KEY,
    ),
    (
        composite(),
        {"spec.schedulingConstraints.topology": [{"mode": "Required"}]},
        "spec.schedulingConstraints.topology[0]",
        LEVEL_OR_KEY,
    ),
    (
        composite(),
        {"spec.disruptionMode": {"single": {}, "all": {}}},
        "spec.disruptionMode",
        "exactly one of single and all must be set: remove one, or add one",
    ),
    (pod_group(), {"spec.schedulingPolicy.basic": {}}, "spec.schedulingPolicy", SCHEDULING_POLICY),
    (
        pod_group(),
        {"spec.schedulingPolicy.gang.minCount": 0},
        "spec.schedulingPolicy.gang.minCount",
        "should be greater than or equal to 1",
    ),
    (pod_group(), {"spec.workloadRef": {}}, "spec.workloadRef.templateName", "Required value"),
    (queue(), {"spec.cohort": GONE}, "spec.cohort", NEED_COHORT),
    (queue(), {f"{AMOUNT}.lend": 65}, f"{AMOUNTS}.lend", LENDS_TOO_MUCH),
    (queue(), {f"{AMOUNT}.nominal": "500m"}, f"{AMOUNTS}.nominal", "Ei)?$'"),
    (queue(), {f"{AMOUNT}.nominal": "many"}, f"{AMOUNTS}.nominal", "Ei)?$'"),
    (queue(), {f"{AMOUNT}.name": "a gpu"}, f"{AMOUNTS}.name", "use a resource's name, such as nvidia.com/gpu"),
    (queue(), {"spec.flavors.0.resources": [{"name": "cpu", "nominal": 1}] * 2}, "spec.flavors[0].resources[1]", ""),
    (queue(), {"spec.flavors": [{"resources": [{"name": "cpu", "nominal": 1}]}] * 2}, "spec.flavors", SAME_NODES),
    (queue(), {"spec.flavors": []}, "spec.flavors", "should have at least 1 items"),
    (queue(), {"spec.weight": 0}, "spec.weight", "should be greater than or equal to 1"),
    (
        queue(),
        {"spec.namespaces": {"selector": {"matchExpressions": [{"key": "team", "operator": "In"}]}}},
        "spec.namespaces.selector.matchExpressions[0].values",
        "In and NotIn need values, Exists and DoesNotExist take none",
    ),
    (preemption(), {"spec.victims": []}, "spec.victims", "should have at least 1 items"),
    (
        preemption(),
        {"spec.victims": preemption()["spec"]["victims"] * 257},
        "spec.victims",
        "must have at most 256 items",
    ),
    (workload(), {"spec.compositePodGroupTemplates": GONE}, "spec", TEMPLATES),
    (workload(), {"spec.podGroupTemplates": [_LEAF]}, "spec", TEMPLATES),
    (
        workload(),
        {"spec.compositePodGroupTemplates.0.compositePodGroupTemplates": []},
        "spec.compositePodGroupTemplates[0]",
        CHILDREN,
    ),
    (
        workload(),
        {INNERMOST: [{"name": "third", "schedulingPolicy": {"basic": {}}, "podGroupTemplates": []}]},
        f"{THIRD}.podGroupTemplates",
        "should have at least 1 items",
    ),
]

GOOD: list[tuple[Object, Edits]] = [
    (inference(), {}),
    (inference(), {"metadata.name": "a" * 63}),
    (inference(), {"metadata.name": "0-llm"}),
    (inference(), {"spec.replicas": 0}),
    (inference(), {"spec.replicas": 20, "spec.roles": [role("r", replicas=125, size=8)]}),
    (inference(), {"spec.roles.0.minReplicas": 0, "spec.roles.0.replicas": 0}),
    (inference(), {"spec.roles.0.replicas": 0}),
    (inference(), {"spec.roles.0.network": {"ports": [PORT, {**PORT, "name": "b", "protocol": "UDP"}]}}),
    (inference(), {"spec.roles.0.network": {"ports": [PORT], "service": {"endpoints": "All"}, "subdomain": "Shared"}}),
    (
        inference(),
        {
            "spec.roles.0.network": {
                "ports": [{**PORT, "appProtocol": "kubernetes.io/h2c"}],
                "metadata": {"labels": {"team": "search"}, "annotations": {"networking.istio.io/exportTo": "."}},
            }
        },
    ),
    (inference(), {"spec.roles.0.network": {"subdomain": "UniquePerReplica", "metadata": {"labels": {"a": ""}}}}),
    (inference(), {"spec.compat": {"lws": False, "lwsLabels": "Always"}}),
    (inference(), {"spec.roles.0.network": {"ports": [{"name": f"p{n}", "port": n} for n in range(1, 33)]}}),
    (inference(), {"spec.roles": [role(f"{index:020}") for index in range(16)]}),
    (inference(), {"spec.roles.0.template.spec": {**template()["spec"], "newerThanCovey": {"deep": [1]}}}),
    (inference(), {"spec.roles.0.template.spec.containers": [{"name": "a", "newerThanCovey": True}]}),
    (inference(), {"spec.roles.0.template.metadata": {"labels": {"app": "llm"}, "creationTimestamp": None}}),
    (
        inference(),
        {
            "spec.roles.0.template.metadata": {
                "annotations": {"covey.dev/restart-ignored-containers": "proxy", "covey.dev/domain-labels": "true"}
            }
        },
    ),
    (inference(), {"spec.proximity": [{"roles": ["prefill", "decode"], "level": "rack", "mode": "Required"}]}),
    (inference(), {"spec.spread": {"level": "block", "mode": "Required", "maxPerDomain": 2}}),
    (inference(), {"spec.topology": {"name": "network", "required": "block", "preferred": "rack"}}),
    (inference(), {"spec.roles.0.update": {"maxSurge": "25%", "maxUnavailable": 0}}),
    (inference(), {"spec.roles.0.dependsOn": [{"role": "decode", "condition": "Scheduled"}]}),
    (
        inference(),
        {
            "spec.roles.0.dependsOn": [{"role": "decode", "condition": "Ready"}],
            "spec.roles.1.replicas": 0,
            "spec.roles.1.minReplicas": 0,
        },
    ),
    (topology(), {}),
    (composite(), {"spec.schedulingPolicy": {"basic": {}}, "spec.parentCompositePodGroupName": "other"}),
    (
        composite(),
        {
            "spec.schedulingConstraints": {
                "topologyName": "network",
                "topology": [{"level": "block"}, {"key": "example.com/rack", "mode": "Preferred", "scope": "Pod"}],
                "proximity": [{"roles": ["prefill", "decode"], "level": "rack"}],
                "spread": {"level": "block"},
                "followUnit": False,
            }
        },
    ),
    (pod_group(), {"spec.disruptionMode": {"all": {}}, "spec.desiredCount": 2}),
    (queue(), {}),
    (
        queue(),
        {
            AMOUNT: {"name": "cpu", "nominal": "2k", "lend": 5},
            "spec.namespaces": {"selector": {"matchLabels": {"team": "search"}}},
            "spec.flavors.1": {"nodes": {"product": "h100"}, "resources": [{"name": "memory", "nominal": "64Gi"}]},
        },
    ),
    (workload(), {}),
    (workload(), {INNERMOST: [{"name": "third", "schedulingPolicy": {"basic": {}}, "podGroupTemplates": [_LEAF]}]}),
]


def _name(case: tuple[Any, ...]) -> str:
    edits = next(part for part in reversed(case) if isinstance(part, dict))
    return ",".join(f"{path}={'GONE' if value is GONE else str(value)[:24]}" for path, value in edits.items())[:80]


def create(cluster: Cluster, manifest: Object) -> Any:
    return cluster.api("POST", f"{collection(manifest)}?dryRun=All&fieldValidation=Strict", manifest)


def assert_refused(cluster: Cluster, manifest: Object, path: str, message: str) -> None:
    with pytest.raises(ApiException) as caught:
        create(cluster, manifest)
    assert caught.value.status == 422
    messages = [text for field, text in refusals(caught.value) if field == path]
    assert any(text.endswith(message) for text in messages), refusals(caught.value)


@pytest.mark.parametrize(("edits", "path", "message"), BAD_INFERENCES, ids=map(_name, BAD_INFERENCES))
def test_a_bad_inference_is_refused_with_a_message(cluster: Cluster, edits: Edits, path: str, message: str) -> None:
    assert_refused(cluster, changed(inference(), edits), path, message)


@pytest.mark.parametrize(
    ("manifest", "edits", "path", "message"),
    BAD_OTHERS,
    ids=[f"{case[0]['kind']}:{_name(case)}" for case in BAD_OTHERS],
)
def test_other_bad_objects_are_refused_with_a_message(
    cluster: Cluster, manifest: Object, edits: Edits, path: str, message: str
) -> None:
    assert_refused(cluster, changed(manifest, edits), path, message)


@pytest.mark.parametrize(
    ("manifest", "edits"), GOOD, ids=[f"{case[0]['kind']}:{_name(case) or 'as it is'}" for case in GOOD]
)
def test_good_objects_are_accepted(cluster: Cluster, manifest: Object, edits: Edits) -> None:
    wanted = changed(manifest, edits)
    assert create(cluster, wanted)["metadata"]["name"] == wanted["metadata"]["name"]


def test_unknown_fields_are_refused(cluster: Cluster) -> None:
    with pytest.raises(ApiException) as caught:
        create(cluster, changed(inference(), {"spec.roles.0.minReplica": 1}))
    assert 'unknown field "spec.roles[0].minReplica"' in status_of(caught.value)["message"]
