package router

import (
	"slices"

	"signalbox/inference"
)

// Conditions are what a request demands of its worker.
type Conditions struct {
	// Allowed are the only workers to consider; nil for all, empty for none.
	Allowed []uint64
	// Required are taints that the worker must carry, all of them.
	Required []string
	// Tried are workers to pass over; LastError is how the last of them failed.
	Tried     []uint64
	LastError error
	// Pin is the only rank to consider, when set; it has a rank.
	Pin *Pin
	// IgnoreOverload keeps overloaded workers in.
	IgnoreOverload bool
}

// RankRef names a rank by its worker's index in a snapshot.
type RankRef struct {
	Worker int32
	Rank   uint32
}

// AppendEligible appends the ranks that meet the conditions, by ascending worker id and rank. When there is none the error says
// why: overloaded (529), all tried before, or nobody fits (500).
func (s *Snapshot) AppendEligible(list []RankRef, conditions *Conditions) ([]RankRef, error) {
	if conditions.Pin != nil {
		return s.appendPinned(list, conditions)
	}
	start := len(list)
	overloaded, tried := false, false
	for i := range s.Workers {
		worker := &s.Workers[i]
		if conditions.Allowed != nil && !slices.Contains(conditions.Allowed, worker.ID) {
			continue
		}
		state := s.states[i]
		if state.Down() || len(conditions.Required) > 0 && !worker.HasAllTaints(conditions.Required) {
			continue
		}
		from, to, known := worker.Ranks()
		if !known {
			continue
		}
		if state.Overloaded() && !conditions.IgnoreOverload {
			overloaded = true
			continue
		}
		if len(conditions.Tried) > 0 && slices.Contains(conditions.Tried, worker.ID) {
			tried = true
			continue
		}
		for rank := from; rank < to; rank++ {
			list = append(list, RankRef{Worker: int32(i), Rank: rank})
		}
	}
	switch {
	case len(list) > start:
		return list, nil
	case tried:
		return list, NoneUntried(conditions.LastError)
	case overloaded:
		return list, AllEligibleOverloaded()
	}
	return list, NoEndpoints()
}

func (s *Snapshot) appendPinned(list []RankRef, conditions *Conditions) ([]RankRef, error) {
	pin := conditions.Pin
	if conditions.Allowed != nil && !slices.Contains(conditions.Allowed, pin.WorkerID) {
		return list, inference.Errorf(inference.Unroutable, "pinned worker %d is not in allowed worker set", pin.WorkerID)
	}
	index := s.Find(pin.WorkerID)
	if index < 0 || s.states[index].Down() || !s.Workers[index].Owns(pin.Rank) || !s.Workers[index].HasAllTaints(conditions.Required) {
		return list, NoEndpoints()
	}
	if s.states[index].Overloaded() && !conditions.IgnoreOverload {
		return list, inference.Errorf(inference.ResourceExhausted, "pinned worker %d is overloaded", pin.WorkerID)
	}
	return append(list, RankRef{Worker: int32(index), Rank: pin.Rank}), nil
}
