// Package kvevents listens to what workers say about their KV caches and keeps an index equal to it.
//
// Each data-parallel rank of a worker has a publisher. Discovery tells where it is (an event channel), for whom it speaks and who
// answers for events that were missed (an event source). A [Subscriber] follows all publishers of an endpoint: it applies their
// events in order to a [Sink], notices when some are missing, and asks the worker for them, or for all that it holds.
//
//	subscriber, err := kvevents.Start(ctx, kvevents.Options{Backend: backend, Endpoint: endpoint, Queries: client, Sink: index})
//	defer subscriber.Close()
//
// Events of one rank come to the sink one after the other; those of different ranks at the same time. The sink never sees a
// rank's events out of order, twice, or of a worker that has left.
//
// The package knows nothing of prompts, of routing, and of how an index works inside.
package kvevents
