// Package kvindex knows which rank of which worker holds how much of a prompt in its KV cache, and in which tier.
//
// Workers tell by events what they store and remove; [Index.Apply] applies them. A router asks with the local block hashes of a
// prompt (package kvhash); [Index.Find] answers, for every rank that holds any of it, how many leading blocks are on the device
// and with how many the lower tiers continue.
//
//	index, err := kvindex.New(kvindex.Options{Shards: 4})
//	err = index.Apply(kvindex.Event{Rank: rank, Op: kvindex.Stored, Blocks: blocks})
//	var matches kvindex.Matches // one per goroutine, reused
//	index.Find(&matches, kvindex.Query{Locals: locals, Sequence: sequence})
//	for _, match := range matches.Ranks { … }
package kvindex
