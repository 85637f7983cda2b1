// Package kvservice is the router's parts as services of their own, with the HTTP interfaces of Dynamo's: a selection service that chooses
// workers for requests which others send, a slot tracker that counts what workers are busy with, and an indexer that knows which worker
// holds which prefix. Gateways that route by themselves ask them.
package kvservice
