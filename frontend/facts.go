package frontend

import (
	"signalbox/observe"
	"signalbox/preprocess/tokenizer"
)

// remembers is a tokenizer that keeps count of what it remembers of prompts.
type remembers interface{ CacheStats() tokenizer.CacheStats }

// facts tells scrapers about the models that clients reach. Of several sets of a model the first counts.
func (c catalog) facts() []observe.ModelFacts {
	var list []observe.ModelFacts
	index := make(map[string]int)
	for _, entry := range c.frontend.manager.Served() {
		if !entry.Server.frontable() {
			continue
		}
		name, ready := entry.Set.Card.DisplayName, entry.Server.ready()
		if at, seen := index[name]; seen {
			list[at].Ready = list[at].Ready || ready
			continue
		}
		index[name] = len(list)
		runtime := &entry.Set.Card.Runtime
		length, block := uint64(entry.Set.Card.EffectiveContextLength()), uint64(entry.Set.Card.BlockSize)
		limit := uint64(c.frontend.options.MigrationLimit)
		if limit == 0 {
			limit = uint64(entry.Set.Card.MigrationLimit)
		}
		list = append(list, observe.ModelFacts{Name: name, ContextLength: &length, BlockSize: &block, MaxSequences: runtime.MaxSequences,
			MaxBatchedTokens: runtime.MaxBatchedTokens, TotalBlocks: runtime.TotalBlocks, MigrationLimit: limit, Ready: ready})
	}
	return list
}

// caches tells scrapers what the tokenizers remember; one that several models share is told once.
func (c catalog) caches() []observe.CacheFacts {
	var list []observe.CacheFacts
	names, tokenizers := make(map[string]bool), make(map[remembers]bool)
	for _, entry := range c.frontend.manager.Served() {
		name, from := entry.Set.Card.DisplayName, entry.Server.remembers
		if from == nil || names[name] || tokenizers[from] {
			continue
		}
		names[name], tokenizers[from] = true, true
		stats := from.CacheStats()
		list = append(list, observe.CacheFacts{Model: name, Hits: stats.Hits, Misses: stats.Misses, CachedTokens: stats.CachedTokens, UncachedTokens: stats.UncachedTokens})
	}
	return list
}
