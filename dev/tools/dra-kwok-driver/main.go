// Command dra-kwok-driver runs the controller of sigs.k8s.io/karpenter/dra-kwok-driver, unchanged: it writes the ResourceSlices of nodes that
// kwok plays, as its DRAConfigs have them. Karpenter's own command listens at two fixed ports of every interface; this one at the given address.
package main

import (
	"flag"
	"log"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	scheme "k8s.io/client-go/kubernetes/scheme"
	control "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/karpenter/dra-kwok-driver/pkg/apis/v1alpha1"
	"sigs.k8s.io/karpenter/dra-kwok-driver/pkg/controllers"
)

func main() {
	health := flag.String("health", "127.0.0.1:0", "where /readyz is")
	flag.Parse()
	control.SetLogger(zap.New(zap.UseDevMode(true)))
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, resource.AddToScheme, v1alpha1.AddToScheme} {
		must(add(kinds))
	}
	options := control.Options{Scheme: kinds, Metrics: metrics.Options{BindAddress: "0"}, HealthProbeBindAddress: *health}
	manager, err := control.NewManager(control.GetConfigOrDie(), options)
	must(err)
	must(manager.AddReadyzCheck("readyz", healthz.Ping))
	ctx := control.SetupSignalHandler()
	must(controllers.NewResourceSliceController(manager.GetClient()).Register(ctx, manager))
	must(manager.Start(ctx))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
