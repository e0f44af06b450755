// Command kstatus says of each JSON object on standard input what Flux and Helm make of its status: one line of JSON with
// the status (InProgress, Current, Failed, Terminating, NotFound, Unknown) and the sentence that they show.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	objects, results := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		object := &unstructured.Unstructured{}
		if err := objects.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		result, err := status.Compute(object)
		if err != nil {
			log.Fatal(err)
		}
		if err := results.Encode(map[string]string{"status": result.Status.String(), "message": result.Message}); err != nil {
			log.Fatal(err)
		}
	}
}
