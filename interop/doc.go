// Package interop holds tests with real peers: the Dynamo frontend and mock worker in two releases, real etcd, and the clients that
// people use. They need Python environments with the peers; where those are absent the tests are skipped and say so.
package interop
