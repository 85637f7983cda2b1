package frontend

import (
	"maps"
	"slices"
	"testing"

	"signalbox/inference"
	"signalbox/router"
)

func TestTransfersStayWhereThePrefillWorkerSays(t *testing.T) {
	weight := float32(0.5)
	zone := map[string]string{"zone": "z1", "rack": "r7"}
	for name, test := range map[string]struct {
		topology  router.Topology
		worker    uint64 // 1 when 0
		required  []string
		preferred map[string]float32
		fails     bool
	}{
		"no domain":           {topology: router.Topology{Domains: zone}, required: []string{"gpu"}},
		"required":            {topology: router.Topology{Domains: zone, TransferDomain: "rack", Enforcement: "required"}, required: []string{"gpu", "dynamo.topology/rack=r7"}},
		"preferred":           {topology: router.Topology{Domains: zone, TransferDomain: "zone", Enforcement: "preferred", PreferredWeight: &weight}, required: []string{"gpu"}, preferred: map[string]float32{"dynamo.topology/zone=z1": 0.5}},
		"no value":            {topology: router.Topology{TransferDomain: "zone", Enforcement: "required"}, fails: true},
		"no enforcement":      {topology: router.Topology{Domains: zone, TransferDomain: "zone"}, fails: true},
		"no weight":           {topology: router.Topology{Domains: zone, TransferDomain: "zone", Enforcement: "preferred"}, fails: true},
		"gone, required here": {topology: router.Topology{Domains: zone, TransferDomain: "zone", Enforcement: "required"}, worker: 9, fails: true},
		"gone, not required":  {topology: router.Topology{Domains: zone}, worker: 9, required: []string{"gpu"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{pool: router.NewPool(router.PoolOptions{})}
			s.pool.SetWorkers([]router.Worker{{ID: 1, Topology: test.topology}})
			asked := []string{"gpu"}
			request := &inference.Request{Routing: inference.Routing{RequiredTaints: asked}}
			err := s.constrainTransfer(max(test.worker, 1), request)
			if (err != nil) != test.fails {
				t.Fatalf("error %v", err)
			}
			if err == nil && (!slices.Equal(request.Routing.RequiredTaints, test.required) || !maps.Equal(request.Routing.PreferredTaints, test.preferred)) {
				t.Errorf("required %v, preferred %v", request.Routing.RequiredTaints, request.Routing.PreferredTaints)
			}
			if !slices.Equal(asked, []string{"gpu"}) {
				t.Error("the client's own list was changed")
			}
		})
	}
}
