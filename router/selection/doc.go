// Package selection holds worker-selection policies: the step of cache-aware routing that decides which of the eligible ranks
// receives a request. Discovery, eligibility, queueing, booking and accounting stay with the router, whatever the policy.
//
// A policy sees a [Table] of candidates and returns a row of it. Write one by implementing [Policy], or put it together from
// filters, scorers and a picker with [Pipeline]; then add a [Type] to the catalog that the router is given. The built-in
// [Default] follows the cost model of router/cost.
package selection
