// Package router decides which worker, and which data-parallel rank of it, serves a request.
//
// This package holds what every way of deciding shares: the [Router] interface that a request's pipeline calls, the
// [Placement] it gets back, the [Pool] of workers as discovery and failures leave it, and the [Decision] record that explains a
// choice. The ways themselves live below it:
//
//   - router/mode: round robin, random, power of two, least loaded, device aware, direct;
//   - router/kv: cache-aware routing, built from router/cost (what a placement costs), router/load (what every rank is doing),
//     router/queue (who waits when all are busy) and router/policy (replacing the choice);
//   - router/affinity: sessions that stick to a worker, around any of the others;
//   - router/disagg: whether a request needs a prefill worker of its own, and topology rules between the two.
//
// All of it is pure: no sockets, no files, no metrics library; time comes from a [Clock] and randomness from a seed. What
// happened can be observed through snapshots and hooks.
package router
