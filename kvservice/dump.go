package kvservice

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"signalbox/kvindex"
)

// The types below are events as a dump spells them.

type dumpedSpace struct {
	BlockSize int           `json:"block_size"`
	Events    []dumpedEvent `json:"events"`
}

type dumpedEvent struct {
	WorkerID uint64       `json:"worker_id"`
	Tier     string       `json:"storage_tier"`
	Domain   string       `json:"residency_domain"`
	Event    dumpedChange `json:"event"`
}

type dumpedChange struct {
	ID   int        `json:"event_id"`
	Data dumpedData `json:"data"`
	Rank uint32     `json:"dp_rank"`
}

type dumpedData struct {
	Stored dumpedStore `json:"stored"`
}

type dumpedStore struct {
	Parent *uint64       `json:"parent_hash"`
	Start  *uint64       `json:"start_position"`
	Blocks []dumpedBlock `json:"blocks"`
}

type dumpedBlock struct {
	Hash  uint64  `json:"block_hash"`
	Local uint64  `json:"tokens_hash"`
	Media *string `json:"mm_extra_info"`
}

// dump writes everything that is held: what makes an empty indexer equal to this one.
func (x *Indexer) dump(w http.ResponseWriter, _ *http.Request) {
	x.mutex.Lock()
	spaces := make(map[string]*space, len(x.spaces))
	for name, s := range x.spaces {
		spaces[name.model+":"+name.group] = s
	}
	x.mutex.Unlock()
	all := make(map[string]dumpedSpace, len(spaces))
	for name, s := range spaces {
		dumped := dumpedSpace{BlockSize: s.blockSize, Events: []dumpedEvent{}}
		var byTier [kvindex.Tiers][]kvindex.Event
		for _, rank := range s.index.Ranks() {
			for event := range s.index.Events(rank) {
				byTier[event.Tier] = append(byTier[event.Tier], event)
			}
		}
		for tier, events := range byTier {
			for i, event := range events {
				dumped.Events = append(dumped.Events, spell(kvindex.Tier(tier), i, &event))
			}
		}
		all[name] = dumped
	}
	answer(w, http.StatusOK, all)
}

func spell(tier kvindex.Tier, id int, event *kvindex.Event) dumpedEvent {
	stored := dumpedStore{Blocks: []dumpedBlock{}}
	if event.HasParent {
		parent := event.Parent
		stored.Parent = &parent
	}
	for _, block := range event.Blocks {
		stored.Blocks = append(stored.Blocks, dumpedBlock{Hash: block.Hash, Local: block.Local})
	}
	return dumpedEvent{WorkerID: event.Rank.WorkerID, Tier: tier.String(), Domain: "worker",
		Event: dumpedChange{ID: id, Data: dumpedData{stored}, Rank: event.Rank.DPRank}}
}

// maxDump bounds another indexer's dump, in bytes.
const maxDump = 1 << 30

// Restore takes over all that another indexer, at a base URL, holds. It is for a fresh indexer, before workers are registered.
func (x *Indexer) Restore(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/dump", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	var all map[string]dumpedSpace
	if err := json.NewDecoder(io.LimitReader(response.Body, maxDump)).Decode(&all); err != nil {
		return fmt.Errorf("the dump of %s: %w", url, err)
	}
	x.mutex.Lock()
	defer x.mutex.Unlock()
	for key, dumped := range all {
		at := strings.LastIndexByte(key, ':')
		if at < 0 || dumped.BlockSize < 1 {
			return fmt.Errorf("the dump of %s has an index called %q with blocks of %d tokens", url, key, dumped.BlockSize)
		}
		name := pool{key[:at], key[at+1:]}
		s := x.spaces[name]
		if s == nil {
			if s, err = x.newSpace(dumped.BlockSize, 0); err != nil {
				return err
			}
			x.spaces[name] = s
		}
		for _, event := range dumped.Events {
			if change, err := event.read(); err == nil {
				_ = s.index.Apply(change) // what cannot be applied is not known, as if it had not been told
			}
		}
	}
	return nil
}

// read returns the event that a dump spells.
func (d *dumpedEvent) read() (kvindex.Event, error) {
	tier, err := kvindex.ParseTier(d.Tier)
	event := kvindex.Event{Rank: kvindex.Rank{WorkerID: d.WorkerID, DPRank: d.Event.Rank}, Tier: tier, Op: kvindex.Stored}
	if parent := d.Event.Data.Stored.Parent; parent != nil {
		event.Parent, event.HasParent = *parent, true
	}
	for _, block := range d.Event.Data.Stored.Blocks {
		event.Blocks = append(event.Blocks, kvindex.Block{Hash: block.Hash, Local: block.Local})
	}
	return event, err
}
