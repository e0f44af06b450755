// Where the CRDs of the Prometheus operator and of cert-manager are read from, pinned by go.sum: the chart makes some of theirs.
module covey.dev/tools/crds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
