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
// # Order, loss and recovery
//
// A publisher numbers its events. Duplicates and late ones are left out. When a number is missing the worker is asked for the
// events since the last one; it answers with them, or with all that it holds when it no longer has them. Everything is asked for
// after each (re)connection and when a publisher begins anew. While a question is open the rank's entries stay as they were, and
// live messages are held for afterwards. A rank whose publisher can't be reached counts as empty.
//
// # Limits
//
// Nothing is queued between a socket and the sink: a sink that is too slow makes messages wait at the publisher, which drops them at
// its own limit; the gap is then found and closed. The messages held during a recovery are bounded to 1 MiB for each rank; the
// oldest are dropped, and the recovery asks once more. At most Options.MaxQueries queries are under way. A recovery is given up
// after 8 tries with growing pauses: the rank then counts as empty but for new events, which is said in the log, and a minute later
// all is asked for again.
//
// The package knows nothing of prompts, of routing, and of how an index works inside.
package kvevents
