package remoteindex

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"signalbox/internal/packed"
	"signalbox/kvindex"
)

const (
	// queryEndpoint answers questions, recordEndpoint takes note of placements; both are in the workers' component.
	queryEndpoint  = "kv_indexer_query"
	recordEndpoint = "kv_indexer_record_routing_decision"
	// maxBlocks bounds the blocks of one prompt, maxRows the ranks of one answer.
	maxBlocks = 1 << 20
	maxRows   = 1 << 18
)

// question is what is held of a prompt.
type question struct {
	model      string
	locals     []uint64
	deviceOnly bool
}

func (q *question) append(dst []byte) []byte {
	dst = msgp.AppendMapHeader(dst, 3)
	dst = msgp.AppendString(dst, "model_name")
	dst = msgp.AppendString(dst, q.model)
	dst = msgp.AppendString(dst, "block_hashes")
	dst = appendHashes(dst, q.locals)
	dst = msgp.AppendString(dst, "device_only")
	return msgp.AppendBool(dst, q.deviceOnly)
}

func (q *question) parse(data []byte) error {
	_, err := packed.Each(data, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "model_name":
			q.model, rest, err = msgp.ReadStringBytes(value)
		case "block_hashes":
			q.locals, rest, err = packed.Hashes(value, maxBlocks)
		case "device_only":
			q.deviceOnly, rest, err = msgp.ReadBoolBytes(value)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
	return err
}

// decision is a placement that an index which learns from placements is told.
type decision struct {
	model            string
	rank             kvindex.Rank
	locals, sequence []uint64
}

func (d *decision) append(dst []byte) []byte {
	dst = msgp.AppendMapHeader(dst, 4)
	dst = msgp.AppendString(dst, "model_name")
	dst = msgp.AppendString(dst, d.model)
	dst = msgp.AppendString(dst, "worker")
	dst = appendRank(dst, d.rank)
	dst = msgp.AppendString(dst, "local_hashes")
	dst = appendHashes(dst, d.locals)
	dst = msgp.AppendString(dst, "sequence_hashes")
	return appendHashes(dst, d.sequence)
}

func (d *decision) parse(data []byte) error {
	_, err := packed.Each(data, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "model_name":
			d.model, rest, err = msgp.ReadStringBytes(value)
		case "worker":
			d.rank, rest, err = readRank(value)
		case "local_hashes":
			d.locals, rest, err = packed.Hashes(value, maxBlocks)
		case "sequence_hashes":
			d.sequence, rest, err = packed.Hashes(value, maxBlocks)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
	if err == nil && len(d.locals) != len(d.sequence) {
		err = fmt.Errorf("%d local and %d sequence hashes; a block has one of each", len(d.locals), len(d.sequence))
	}
	return err
}

// appendMatches writes the answer to a question. Every tier that some rank has blocks in is there, with what each rank has in it.
func appendMatches(dst []byte, matches *kvindex.Matches, deviceOnly bool) []byte {
	dst = msgp.AppendMapHeader(dst, 1)
	dst = msgp.AppendString(dst, "TieredScores")
	dst = msgp.AppendMapHeader(dst, 2)
	dst = msgp.AppendString(dst, "device")
	dst = msgp.AppendMapHeader(dst, 2)
	dst = msgp.AppendString(dst, "scores")
	dst = appendTier(dst, matches, kvindex.Device)
	dst = msgp.AppendString(dst, "frequencies")
	dst = msgp.AppendArrayHeader(dst, 0)
	dst = msgp.AppendString(dst, "lower_tier")
	var tiers []kvindex.Tier
	for tier := kvindex.Device + 1; !deviceOnly && tier < kvindex.Tiers; tier++ {
		for i := range matches.Ranks {
			if matches.Ranks[i].Blocks[tier] > 0 {
				tiers = append(tiers, tier)
				break
			}
		}
	}
	dst = msgp.AppendArrayHeader(dst, uint32(len(tiers)))
	for _, tier := range tiers {
		dst = msgp.AppendArrayHeader(dst, 2)
		dst = msgp.AppendString(dst, tier.String())
		dst = msgp.AppendMapHeader(dst, 1)
		dst = msgp.AppendString(dst, "hits")
		dst = appendTier(dst, matches, tier)
	}
	return dst
}

func appendTier(dst []byte, matches *kvindex.Matches, tier kvindex.Tier) []byte {
	count := uint32(0)
	for i := range matches.Ranks {
		if matches.Ranks[i].Blocks[tier] > 0 {
			count++
		}
	}
	dst = msgp.AppendArrayHeader(dst, count)
	for i := range matches.Ranks {
		if blocks := matches.Ranks[i].Blocks[tier]; blocks > 0 {
			dst = msgp.AppendArrayHeader(dst, 2)
			dst = appendRank(dst, matches.Ranks[i].Rank)
			dst = msgp.AppendUint32(dst, blocks)
		}
	}
	return dst
}

func appendError(dst []byte, text string) []byte {
	dst = msgp.AppendMapHeader(dst, 1)
	dst = msgp.AppendString(dst, "Error")
	return msgp.AppendString(dst, text)
}

// parseMatches reads the answer to a question.
func parseMatches(into *kvindex.Matches, data []byte) error {
	into.Ranks = into.Ranks[:0]
	places := make(map[kvindex.Rank]int)
	_, err := packed.Each(data, func(key, value []byte) ([]byte, error) {
		switch string(key) {
		case "Error":
			text, _, err := msgp.ReadStringBytes(value)
			if err == nil {
				err = fmt.Errorf("the index says: %.300s", text)
			}
			return nil, err
		case "TieredScores":
		default:
			return nil, errors.New("an answer of an unknown kind")
		}
		return packed.Each(value, func(key, value []byte) ([]byte, error) {
			switch string(key) {
			case "device":
				return packed.Each(value, func(key, value []byte) ([]byte, error) {
					if string(key) != "scores" {
						return msgp.Skip(value)
					}
					return readTier(into, places, kvindex.Device, value)
				})
			case "lower_tier":
				return readLowerTiers(into, places, value)
			}
			return msgp.Skip(value)
		})
	})
	return err
}

func readLowerTiers(into *kvindex.Matches, places map[kvindex.Rank]int, data []byte) ([]byte, error) {
	count, data, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		var size uint32
		if size, data, err = msgp.ReadArrayHeaderBytes(data); err != nil || size != 2 {
			return nil, fmt.Errorf("a tier of %d members; want its name and its hits (%w)", size, err)
		}
		var name string
		if name, data, err = msgp.ReadStringBytes(data); err != nil {
			return nil, err
		}
		tier, err := kvindex.ParseTier(name)
		known := err == nil && tier != kvindex.Device // a tier that is not known here holds nothing that counts
		data, err = packed.Each(data, func(key, value []byte) ([]byte, error) {
			if string(key) != "hits" || !known {
				return msgp.Skip(value)
			}
			return readTier(into, places, tier, value)
		})
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}

func readTier(into *kvindex.Matches, places map[kvindex.Rank]int, tier kvindex.Tier, data []byte) ([]byte, error) {
	count, data, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	for range count {
		var size uint32
		if size, data, err = msgp.ReadArrayHeaderBytes(data); err != nil || size != 2 {
			return nil, fmt.Errorf("a row of %d members; want a rank and its blocks (%w)", size, err)
		}
		var rank kvindex.Rank
		if rank, data, err = readRank(data); err != nil {
			return nil, err
		}
		var blocks uint32
		if blocks, data, err = msgp.ReadUint32Bytes(data); err != nil {
			return nil, err
		}
		if blocks == 0 {
			continue
		}
		place, known := places[rank]
		if !known {
			if len(into.Ranks) >= maxRows {
				return nil, fmt.Errorf("more than %d ranks", maxRows)
			}
			place = len(into.Ranks)
			places[rank] = place
			into.Ranks = append(into.Ranks, kvindex.Match{Rank: rank})
		}
		into.Ranks[place].Blocks[tier] = blocks
	}
	return data, nil
}

func appendRank(dst []byte, rank kvindex.Rank) []byte {
	dst = msgp.AppendMapHeader(dst, 2)
	dst = msgp.AppendString(dst, "worker_id")
	dst = msgp.AppendUint64(dst, rank.WorkerID)
	dst = msgp.AppendString(dst, "dp_rank")
	return msgp.AppendUint32(dst, rank.DPRank)
}

func readRank(data []byte) (rank kvindex.Rank, rest []byte, err error) {
	rest, err = packed.Each(data, func(key, value []byte) (rest []byte, err error) {
		switch string(key) {
		case "worker_id":
			rank.WorkerID, rest, err = msgp.ReadUint64Bytes(value)
		case "dp_rank":
			rank.DPRank, rest, err = msgp.ReadUint32Bytes(value)
		default:
			rest, err = msgp.Skip(value)
		}
		return rest, err
	})
	return rank, rest, err
}

func appendHashes(dst []byte, hashes []uint64) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(hashes)))
	for _, hash := range hashes {
		dst = msgp.AppendUint64(dst, hash)
	}
	return dst
}
