// Package queue holds requests that wait for room on busy workers and decides which of them goes next.
//
// Every request waits in one class. Inside a class the order is first come first served or weighted shortest processing time, with
// strict tiers above either. Requests that only one rank may serve wait in a lane of that rank, so that they hold nobody else up;
// all others share a lane. Among classes, deficit round robin shares the service by quantum: a class pays for each request with the
// prompt tokens that no worker has cached, and no class starves, however cheap the others' requests are.
//
// A [Queue] knows neither workers nor time: the caller says which of the lanes' first requests cannot go now. It is not safe for
// concurrent use: whoever dispatches holds a lock anyway.
package queue
