package discovery_test

import (
	"context"
	"fmt"

	"signalbox/discovery"
	"signalbox/discovery/mem"
)

// A worker announces an endpoint; a frontend learns of it, and that it is gone when the worker closes.
func Example() {
	ctx := context.Background()
	var fleet mem.Store // file.Open, etcd.Open and kube.Open connect to the stores that real fleets share
	worker, frontend := fleet.Open(mem.Options{InstanceID: 0xa}), fleet.Open(mem.Options{})
	defer frontend.Close(ctx)

	events, err := frontend.Watch(ctx, discovery.Instances, "dynamo/backend")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = discovery.Publish(ctx, worker, &discovery.Instance{
		Namespace: "dynamo", Component: "backend", Endpoint: "generate", InstanceID: worker.InstanceID(),
		Transport: discovery.Transport{TCP: "192.0.2.1:4000/a/dynamo/backend/generate"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for event := range events {
		switch event.Kind {
		case discovery.Synced:
			fmt.Println("now all is known")
		case discovery.Put:
			address, path, _ := event.Record.(*discovery.Instance).Transport.Split()
			fmt.Println("send to", address, "for", path)
			worker.Close(ctx)
		case discovery.Delete:
			fmt.Println("gone:", event.Key)
			return
		}
	}
	// Output:
	// now all is known
	// send to 192.0.2.1:4000 for a/dynamo/backend/generate
	// gone: dynamo/backend/generate/a
}
