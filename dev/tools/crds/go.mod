// Where the CRDs of the Prometheus operator, of cert-manager and of KEDA are read from, pinned by go.sum: the chart makes some of
// the first two, the examples some of the last.
module covey.dev/tools/crds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/kedacore/keda/v2 v2.21.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
