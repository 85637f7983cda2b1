// Package kvindex knows which rank of which worker holds how much of a prompt in its KV cache, and in which tier.
//
// Workers tell by events what they store and remove; [Index.Apply] applies them. A router asks with the local block hashes of a
// prompt (package kvhash); [Index.Find] answers, for every rank that holds any of it, how many leading blocks are on the device and
// with how many the lower tiers continue:
//
//	index, err := kvindex.New(kvindex.Options{Shards: 4})
//	err = index.Apply(kvindex.Event{Rank: rank, Op: kvindex.Stored, Blocks: blocks})
//	var matches kvindex.Matches // one per goroutine, reused
//	index.Find(&matches, kvindex.Query{Locals: locals, Sequence: sequence})
//	for _, match := range matches.Ranks { … }
//
// Where engines send no events, [Predicted] and [LRU] fill an index from routing decisions.
//
// # What is exact
//
// An engine calls its blocks by hashes of its own, which mean nothing to others, not even to another process of the same engine. So
// every rank has its own names. A name leads to a place in a prompt, which is told by the sequence hash of the block, and that is
// the same for all. A rank that loses a block in the middle of a prompt holds the prompt up to there; when it gets the block back,
// all behind it counts again. On the device a stored event must name a parent that the rank holds. In lower tiers it need not: such
// blocks wait until the parent's place is known, from whatever tier.
//
// # Events and look-ups at the same time
//
// Look-ups take no lock and never wait for events. Whoever applies an event holds the lock of one shard, in which all ranks of its
// worker are; up to Options.Shards events of different workers are applied at the same time, on the goroutines of the callers, which
// thereby wait for each other instead of filling a queue.
//
// Readers and writers share single atomic words. A node is recognised by its sequence hash, read before and after whatever else is
// read of it: a reader that finds another block there knows that the one it looked for has gone. Only when lists of ranks or tables
// are replaced, which is when ranks come and go and when tables grow, a look-up under way starts again. The only words that look-ups
// change are hints where to look, in nodes, which may be wrong.
//
// # Why it is built like this
//
// Three ways were considered. A compressed radix tree with runs of blocks, as the Dynamo router has it, looks up fast, but a
// run is shared by ranks that hold it to different depths, under different names and with gaps: keeping all that exact costs
// what runs save. A hash table from sequence hashes to sets of ranks is exact at once, but each block of an event costs a cache
// miss there and another in the rank's own table. A first version of that was measured at less than half the speed of what is
// here: a tree of single blocks, 24 bytes each in pages without pointers, whose nodes lie side by side in the order of the
// prompt if they were stored together. An event costs one random access for each block, to the rank's own names, and they
// overlap. What it adds to the end of a prompt, or takes from there, is mostly a row that nobody else holds, and is written in one
// go. A look-up leaps over neighbours to the last of them, which its sequence hash proves, and follows links only from there.
// Sets of ranks shrink along a prompt, so that a leap skips all in between. For the same reason shortcuts lead over many links at
// once. What a look-up waits for is memory; so it goes in rounds, and asks in each for all words that it can ask for already, in all
// shards. bench/index has the numbers.
//
// A block costs 24 to 26 bytes for each shard whose ranks hold it, as some nodes are vacant so that there is room for others side by
// side, and 18 to 23 bytes for each rank, in lower tiers about 80. Memory
// follows the live blocks: tables shrink, pages with mostly vacant nodes are moved together, branches that end leave a plain chain,
// and an empty index is as small as a new one. Options.MaxBlocks is a hard limit: at it, blocks are refused and counted.
package kvindex
