// Package affinity keeps the requests of a session on one worker.
//
// A [Router] stands around another one. The first request of a session goes where the inner router sends it; once a worker has taken it,
// the session is bound there, to the rank as well where ranks are known. Later requests go to the same place, and only there, until
// the session has been idle for its time to live, the worker leaves, or a request fails on its way to it. While requests of a session
// are in flight it does not age. Requests that come while the first one is still on its way wait for it.
//
// Bindings are this router's own. Others may be told of them ([Options].Publish) and theirs may be taken over ([Router.Learn]): advice
// that makes a second router agree most of the time, and nothing that a request depends on.
package affinity
