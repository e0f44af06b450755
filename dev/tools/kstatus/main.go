// Command kstatus says of each JSON object on standard input what others make of its status: one line of JSON with a status
// and a sentence. It asks kstatus, as Flux and Helm do (InProgress, Current, Failed, Terminating, NotFound, Unknown), or with
// an argument the file of that name, a health check in Lua for Argo CD (Healthy, Progressing, Degraded, Suspended).
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type judgement struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	judge := kstatus
	if len(os.Args) > 1 {
		judge = health(os.Args[1])
	}
	objects, results := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		object := &unstructured.Unstructured{}
		if err := objects.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		found, err := judge(object)
		if err != nil {
			log.Fatal(err)
		}
		if err := results.Encode(found); err != nil {
			log.Fatal(err)
		}
	}
}

func kstatus(object *unstructured.Unstructured) (judgement, error) {
	result, err := status.Compute(object)
	if err != nil {
		return judgement{}, err
	}
	return judgement{result.Status.String(), result.Message}, nil
}

// health runs a script as Argo CD does: the object is the global obj, the answer a table.
func health(path string) func(*unstructured.Unstructured) (judgement, error) {
	return func(object *unstructured.Unstructured) (judgement, error) {
		state := lua.NewState()
		defer state.Close()
		state.SetGlobal("obj", value(state, object.Object))
		if err := state.DoFile(path); err != nil {
			return judgement{}, err
		}
		table := state.CheckTable(-1)
		return judgement{table.RawGetString("status").String(), table.RawGetString("message").String()}, nil
	}
}

func value(state *lua.LState, from any) lua.LValue {
	switch typed := from.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, each := range typed {
			table.RawSetString(key, value(state, each))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, each := range typed {
			table.Append(value(state, each))
		}
		return table
	case string:
		return lua.LString(typed)
	case bool:
		return lua.LBool(typed)
	case int64:
		return lua.LNumber(typed)
	case float64:
		return lua.LNumber(typed)
	}
	return lua.LNil
}
