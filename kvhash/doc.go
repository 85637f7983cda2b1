// Package kvhash computes the identities of KV-cache blocks: which prompts share a prefix, and how long that prefix is.
//
// A prompt is cut into blocks of equal token count; a trailing partial block has no identity. Each complete block gets two
// 64-bit numbers:
//
//   - the local block hash depends on the tokens of that block alone (plus LoRA adapter, cache namespace and multimodal
//     objects). A prefix index is keyed by it, KV events carry it, and a router queries with it;
//   - the sequence hash chains the local hashes from the start of the prompt, so that equal sequence hashes mean equal
//     prefixes. Active-load tracking and approximate indexes are keyed by it.
//
// Both equal, bit for bit, what Dynamo's router, workers and services compute: a router whose identities differ in one bit
// never finds a cached prefix and nobody sees why. The hash is XXH3-64 in its seeded form.
//
// A [Hasher] is a small value, made once per (block size, adapter, namespace, Eagle) and safe for concurrent use. Its methods
// append to slices of the caller and allocate nothing themselves; blocks that a slice already holds are not hashed again, so
// that a growing sequence costs one hash per new block:
//
//	hasher, err := kvhash.New(kvhash.Scope{BlockSize: 16, LoRA: "adapter-a"})
//	locals = hasher.AppendBlocks(locals[:0], tokens)
//	sequence = hasher.AppendSequence(sequence[:0], locals)
//
// [TrackingKey] derives the same numbers under a secret key for systems that share load information but must not reveal which
// prompts are equal. [Universal] is the block manager's scheme with 128-bit lineage hashes; routing does not use it.
//
// The package knows nothing of events, engines, indexes or settings. Engines name their blocks with hashes of their own; those
// are opaque and never computed here.
package kvhash
