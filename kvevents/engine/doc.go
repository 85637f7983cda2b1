// Package engine reads what inference engines (vLLM, SGLang, TensorRT-LLM) say about their own KV caches, in the batches that they
// publish over raw ZeroMQ, and makes of it the events that an index takes: tokens become local block hashes, media become tiers,
// events of cache groups that no prefix can be served from are left out, and a block that is stored more than once is removed only
// with its last removal.
//
// The engine's own hashes stay opaque: they name blocks, nothing else.
package engine
