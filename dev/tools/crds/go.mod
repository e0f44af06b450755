// Where the CRDs of the Prometheus operator, of cert-manager, of KEDA and of the Gateway API Inference Extension are read from,
// pinned by go.sum: the chart makes some of the first two, the examples some of the third, the operator InferencePools.
module covey.dev/tools/crds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/kedacore/keda/v2 v2.21.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api-inference-extension v1.6.0
)
