// Package cost is the arithmetic of cache-aware routing: what it costs to place a prompt on a rank, in KV blocks, and how one of
// several costs is picked. It sees numbers only, no workers, prompts or clocks, and allocates nothing.
//
// The cost of a candidate is the prompt work that waits there plus this prompt's, less a credit for what the rank holds in
// cache already, plus the blocks that decoding would occupy:
//
//	credit = overlap credit × device blocks + host weight × host blocks + disk weight × disk blocks + shared multiplier × shared blocks
//	cost   = prefill scale × max(0, prompt tokens / block size − credit) + decode blocks + request weight × active requests
//
// The numbers equal those of Dynamo's router to the last bits, so that both place a request alike.
package cost
