// Package peers is what the routers of a fleet tell each other over the event plane: which requests they have booked where, and where
// they have bound sessions. Both are Dynamo's own topics, so that its frontends and these understand each other.
//
// All of it is advice. Messages that get lost, come late or come twice make a router's picture of the others' load worse for a while
// and nothing else; nothing that is told is ever waited for. What is to be told waits in a bounded queue, and the newest is dropped when
// that is full.
package peers
