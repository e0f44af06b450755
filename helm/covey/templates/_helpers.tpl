{{/* Labels of every object. Takes (dict "root" $ "component" "operator"); the component may be left out. */}}
{{- define "covey.labels" -}}
{{ include "covey.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels that find the pods; they never change. */}}
{{- define "covey.selector" -}}
app.kubernetes.io/name: covey
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "covey.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The cluster's version without what a provider adds: v1.33.4-gke.1245 and v1.33.4+k3s1 are v1.33.4. */}}
{{- define "covey.kubeSchedulerImage" -}}
{{- $version := semver .Capabilities.KubeVersion.Version -}}
{{- with .Values.scheduler.kubeScheduler.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default (printf "v%d.%d.%d" $version.Major $version.Minor $version.Patch) }}{{ end }}
{{- end }}
{{- end }}

{{/*
The fields that the pods of both processes share. Takes (dict "root" $ "component" "operator"), and "apart": whether no
two pods may share a host while there are others.
*/}}
{{- define "covey.pod" -}}
serviceAccountName: covey-{{ .component }}
enableServiceLinks: false
{{- if and .root.Values.priorityClassName (ne .component "ui") }}
priorityClassName: {{ .root.Values.priorityClassName }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{ toYaml . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
{{ toYaml . }}
{{- end }}
{{- with .root.Values.affinity }}
affinity:
{{ toYaml . | indent 2 }}
{{- end }}
topologySpreadConstraints:
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- topologyKey: {{ $key }}
  maxSkew: 1
  {{- if and $.apart (eq $key "kubernetes.io/hostname") }}
  whenUnsatisfiable: DoNotSchedule
  # Hosts that are lost count no more, and of a rollout each revision is spread by itself.
  nodeTaintsPolicy: Honor
  matchLabelKeys: [pod-template-hash]
  {{- else }}
  whenUnsatisfiable: ScheduleAnyway
  {{- end }}
  labelSelector:
    matchLabels:
{{ include "covey.selector" $ | indent 6 }}
{{- end }}
{{- end }}

{{- define "covey.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A covey container but for its name and args. Takes (dict "root" $ "resources" …), and "extender", a port. */}}
{{- define "covey.container" -}}
image: {{ include "covey.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
{{ include "covey.containerSecurity" . | indent 2 }}
ports:
- {name: metrics, containerPort: 8080}
- {name: health, containerPort: 8081}
{{- with .extender }}
- {name: extender, containerPort: {{ . }}}
{{- end }}
# A first listing of a large cluster may take a while.
startupProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
  failureThreshold: 90
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
resources:
{{ toYaml .resources | indent 2 }}
{{- end }}

{{/* The flags that both processes share. */}}
{{- define "covey.flags" -}}
- --leader-elect-namespace={{ .Release.Namespace }}
- --metrics-bind-address=:8080
- --health-probe-bind-address=:8081
- --log-level={{ .Values.log.level }}
- --log-format={{ .Values.log.format }}
{{- range .Values.watchNamespaces }}
- --namespace={{ . }}
{{- end }}
{{- end }}

{{/*
A role and its binding: a ClusterRole where the namespace is "", else a Role in each.
Takes (dict "root" $ "name" … "account" … "namespaces" (list …) "rules" …, YAML text).
*/}}
{{- define "covey.rules" -}}
{{- range $namespace := .namespaces }}
{{- $scope := ternary "" "Cluster" (ne $namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}{{ "Role" }}
metadata:
  name: {{ $.name }}
  {{- with $namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
{{ include "covey.labels" (dict "root" $.root) | indent 4 }}
rules:
{{ $.rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}{{ "RoleBinding" }}
metadata:
  name: {{ $.name }}
  {{- with $namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
{{ include "covey.labels" (dict "root" $.root) | indent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $scope }}{{ "Role" }}
  name: {{ $.name }}
subjects:
- {kind: ServiceAccount, name: {{ $.account }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- end }}

{{/* The namespaces of rules that follow `watchNamespaces`, as JSON. */}}
{{- define "covey.watched" -}}
{{ .Values.watchNamespaces | default (list "") | toJson }}
{{- end }}

{{/* A lease of the account's own in Covey's namespace. Takes (dict "root" $ "account" … "leases" (list …) "verbs" …). */}}
{{- define "covey.leaseRules" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .account }}-lease
  namespace: {{ .root.Release.Namespace }}
  labels:
{{ include "covey.labels" (dict "root" .root) | indent 4 }}
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: {{ toJson .leases }}
  verbs: [get, update]
{{- with .read }}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: {{ toJson . }}
  verbs: [get]
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .account }}-lease
  namespace: {{ .root.Release.Namespace }}
  labels:
{{ include "covey.labels" (dict "root" .root) | indent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .account }}-lease
subjects:
- {kind: ServiceAccount, name: {{ .account }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}
