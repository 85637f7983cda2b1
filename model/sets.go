package model

import (
	"cmp"
	"slices"
	"strings"

	"signalbox/discovery"
	"signalbox/model/card"
)

// Key names a worker set: workers that can stand in for each other.
type Key struct {
	Endpoint discovery.EndpointID
	// Model is the served name; Type the kinds of use in lower case, joined by "|"; Role what the workers do.
	Model string
	Type  string
	Role  card.WorkerType
}

// Member is one worker of a set.
type Member struct {
	Instance *discovery.Instance
	Card     *card.Card
	Checksum string
}

// Set is a worker set as it is served: the admitted workers, all with one card checksum.
type Set struct {
	Key      Key
	Checksum string
	// Reservation counts the cohorts that were served, in this set and others: a set with another one has a pipeline of its own, even
	// when it has the same checksum.
	Reservation uint64
	// Card is that of the first admitted worker.
	Card    *card.Card
	Members []Member // in order of their arrival
}

// candidate is a worker with a card, admitted or not.
type candidate struct {
	member  Member
	key     Key
	arrival uint64
}

// group is everybody who wants to be in a set.
type group struct {
	incumbent   string // checksum of the cohort that is served; "" when nobody is
	reservation uint64 // of the incumbent
	// cohorts remember when each checksum was first seen; the entry goes with the cohort's last worker.
	cohorts  map[string]uint64
	rejected map[string]bool // cohorts whose rejection was reported
}

// sets decides admission. It is a pure state machine: the same records in the same order give the same sets.
type sets struct {
	filter    discovery.NamespaceFilter
	instances map[string]*discovery.Instance // by instance key
	cards     map[string]*candidate          // by model record key
	groups    map[Key]*group
	arrivals  uint64
	reserved  uint64 // reservations so far
	// onReject reports a cohort that is not admitted, once.
	onReject func(key Key, incumbent, checksum string)
}

func newSets(filter discovery.NamespaceFilter, onReject func(key Key, incumbent, checksum string)) *sets {
	return &sets{filter: filter, instances: make(map[string]*discovery.Instance), cards: make(map[string]*candidate),
		groups: make(map[Key]*group), onReject: onReject}
}

func (s *sets) putInstance(instance *discovery.Instance) {
	if s.filter.Includes(instance.Namespace) {
		s.instances[instance.Key()] = instance
	}
}

func (s *sets) deleteInstance(key string) { delete(s.instances, key) }

// putModel takes a parsed card. A changed card under the same key moves the worker to where the new card belongs.
func (s *sets) putModel(key string, record *discovery.Model, c *card.Card) {
	if !s.filter.Includes(record.Namespace) {
		return
	}
	setKey := Key{Endpoint: record.EndpointID(), Model: c.DisplayName, Type: strings.ToLower(strings.Join(c.ModelType.Names(), "|")), Role: c.Role()}
	entry := &candidate{member: Member{Card: c, Checksum: c.Checksum()}, key: setKey}
	if old := s.cards[key]; old != nil && old.key == setKey && old.member.Checksum == entry.member.Checksum {
		entry.arrival = old.arrival
	} else {
		s.arrivals++
		entry.arrival = s.arrivals
	}
	s.cards[key] = entry
}

func (s *sets) deleteModel(key string) { delete(s.cards, key) }

// instanceKey is the part of a model record's key that names the instance: without an adapter's suffix.
func instanceKey(modelKey string) string {
	parts := strings.SplitN(modelKey, "/", 5)
	if len(parts) < 5 {
		return modelKey
	}
	return strings.Join(parts[:4], "/")
}

// compute returns the sets that are to be served now.
func (s *sets) compute() map[Key]*Set {
	byKey := make(map[Key][]*candidate)
	for key, entry := range s.cards {
		instance := s.instances[instanceKey(key)]
		if instance == nil {
			continue
		}
		live := *entry
		live.member.Instance = instance
		byKey[entry.key] = append(byKey[entry.key], &live)
	}
	for key := range s.groups {
		if len(byKey[key]) == 0 {
			delete(s.groups, key)
		}
	}
	result := make(map[Key]*Set, len(byKey))
	for key, candidates := range byKey {
		slices.SortFunc(candidates, func(x, y *candidate) int { return cmp.Compare(x.arrival, y.arrival) })
		result[key] = s.admit(key, candidates)
	}
	return result
}

// admit chooses the cohort: the incumbent as long as one of its workers lives, then the oldest.
func (s *sets) admit(key Key, candidates []*candidate) *Set {
	g := s.groups[key]
	if g == nil {
		g = &group{cohorts: make(map[string]uint64), rejected: make(map[string]bool)}
		s.groups[key] = g
	}
	present := make(map[string]bool)
	for _, c := range candidates {
		sum := c.member.Checksum
		present[sum] = true
		if _, known := g.cohorts[sum]; !known {
			g.cohorts[sum] = c.arrival
		}
	}
	for sum := range g.cohorts {
		if !present[sum] {
			delete(g.cohorts, sum)
			delete(g.rejected, sum)
		}
	}
	if !present[g.incumbent] {
		g.incumbent = ""
		for sum, arrival := range g.cohorts {
			if g.incumbent == "" || arrival < g.cohorts[g.incumbent] {
				g.incumbent = sum
			}
		}
		s.reserved++
		g.reservation = s.reserved
	}
	set := &Set{Key: key, Checksum: g.incumbent, Reservation: g.reservation}
	for _, c := range candidates {
		if c.member.Checksum == g.incumbent {
			set.Members = append(set.Members, c.member)
			continue
		}
		if !g.rejected[c.member.Checksum] {
			g.rejected[c.member.Checksum] = true
			if s.onReject != nil {
				s.onReject(key, g.incumbent, c.member.Checksum)
			}
		}
	}
	set.Card = set.Members[0].Card
	return set
}
