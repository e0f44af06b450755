// Command allocator says of each JSON case on standard input how many devices of a class kube-scheduler's own allocator would
// give to a node, one claim after the other: one line with the number, or -1 where it meets an error.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type question struct {
	Slices    []*api.ResourceSlice `json:"slices"`
	Class     *api.DeviceClass     `json:"class"`
	Selectors []api.DeviceSelector `json:"selectors"` // of the request
	Node      string               `json:"node"`
	Taken     [][3]string          `json:"taken"`
}

// The gates that are on by default in Kubernetes 1.37.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true,
}

func (q *question) List() ([]*api.DeviceClass, error)    { return []*api.DeviceClass{q.Class}, nil }
func (q *question) Get(string) (*api.DeviceClass, error) { return q.Class, nil }

func main() {
	cache := cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})
	cases := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		asked := &question{}
		if err := cases.Decode(asked); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		fmt.Println(count(asked, cache))
	}
}

func count(asked *question, cache *cel.Cache) int {
	ctx, taken := context.Background(), sets.New[structured.DeviceID]()
	for _, each := range asked.Taken {
		taken.Insert(structured.MakeDeviceID(each[0], each[1], each[2]))
	}
	node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: asked.Node}}
	for given := 0; ; given++ {
		state := structured.AllocatedState{AllocatedDevices: taken, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection()}
		allocator, err := structured.NewAllocator(ctx, features, state, asked, asked.Slices, cache)
		if err != nil {
			log.Fatal(err)
		}
		found, err := allocator.Allocate(ctx, node, []*api.ResourceClaim{claim(asked, given)})
		if errors.Is(err, structured.ErrFailedAllocationOnNode) {
			return given // a pool is invalid, and the others have no more
		}
		if err != nil {
			return -1
		}
		if len(found) == 0 {
			return given
		}
		for _, each := range found[0].Devices.Results {
			taken.Insert(structured.MakeDeviceID(each.Driver, each.Pool, each.Device))
		}
	}
}

func claim(asked *question, number int) *api.ResourceClaim {
	exactly := &api.ExactDeviceRequest{DeviceClassName: asked.Class.Name, Selectors: asked.Selectors, AllocationMode: api.DeviceAllocationModeExactCount, Count: 1}
	name := fmt.Sprintf("claim-%d", number)
	found := &api.ResourceClaim{ObjectMeta: meta.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	found.Spec.Devices.Requests = []api.DeviceRequest{{Name: "r", Exactly: exactly}}
	return found
}
