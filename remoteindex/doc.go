// Package remoteindex lets several routers share one index of cached blocks over the request plane: a [Server] answers questions from
// the index that a router keeps anyway, a [Client] asks instead of keeping one. Both speak the protocol of Dynamo's frontends
// (--serve-indexer, --use-remote-indexer).
//
// A question that fails or takes too long is answered with "nobody holds anything": the request is then placed by load.
package remoteindex
