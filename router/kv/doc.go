// Package kv places requests by what is in the workers' KV caches and by how busy they are. It looks a prompt up in an [Index],
// has a worker-selection policy choose among the eligible ranks, books the request in the load tracker, and makes requests wait
// in a queue while all ranks are busy.
//
// Admission is serial: choosing and booking are one step under one lock, so that two requests never both see the load before the
// other. Hashing and index look-ups happen before the lock is taken. No goroutine is started; [Router.Run] does the periodic
// work on one of the caller's.
//
// The package knows nothing of KV events, transports and metrics libraries: it asks an Index, reports to an [Observer] and hands
// out [Router.Stats].
package kv
