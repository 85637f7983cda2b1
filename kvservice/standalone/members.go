package standalone

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"signalbox/discovery"
	"signalbox/inference"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/router"
)

// members are the workers of the endpoint: those whose instance and card are both registered.
type members struct {
	instances map[uint64]*discovery.Instance
	cards     map[uint64]*card.Card
}

// list returns the workers in order of their ids.
func (m *members) list() (list []model.Member) {
	for id, instance := range m.instances {
		if c := m.cards[id]; c != nil {
			list = append(list, model.Member{Instance: instance, Card: c})
		}
	}
	slices.SortFunc(list, func(a, b model.Member) int { return cmp.Compare(a.Instance.InstanceID, b.Instance.InstanceID) })
	return list
}

// set is the workers as a set that is routed as one, with the block size that the service was given.
func (m *members) set(options *Options) *model.Set {
	set := &model.Set{Key: model.Key{Endpoint: options.Endpoint, Role: card.AggregatedWorker}, Members: m.list()}
	chosen := card.Card{}
	if len(set.Members) > 0 {
		chosen = *set.Members[0].Card
		set.Key.Model = chosen.DisplayName
	}
	chosen.BlockSize, chosen.RouterConfig = uint32(options.BlockSize), nil
	set.Card = &chosen
	return set
}

// follow keeps track of the workers until ctx ends.
func (s *Service) follow(ctx context.Context) error {
	s.members = members{make(map[uint64]*discovery.Instance), make(map[uint64]*card.Card)}
	e := s.options.Endpoint
	prefix := e.Namespace + "/" + e.Component + "/" + e.Name
	instances, err := s.options.Backend.Watch(ctx, discovery.Instances, prefix)
	if err != nil {
		return fmt.Errorf("watch the workers of %s: %w", prefix, err)
	}
	models, err := s.options.Backend.Watch(ctx, discovery.Models, prefix)
	if err != nil {
		return fmt.Errorf("watch the cards of %s: %w", prefix, err)
	}
	s.wait.Go(func() { // ends with ctx, which closes both channels
		for instances != nil || models != nil {
			select {
			case event, open := <-instances:
				if !open {
					instances = nil
					continue
				}
				s.note(event)
			case event, open := <-models:
				if !open {
					models = nil
					continue
				}
				s.note(event)
			}
		}
	})
	return nil
}

// note takes note of a record that came or went.
func (s *Service) note(event discovery.Event) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	gone := event.Kind == discovery.Delete
	switch record := event.Record.(type) {
	case *discovery.Instance:
		if gone {
			delete(s.members.instances, record.InstanceID)
		} else {
			s.members.instances[record.InstanceID] = record
		}
	case *discovery.Model:
		switch {
		case record.Suffix != "": // an adapter says nothing new of its worker
			return
		case gone:
			delete(s.members.cards, record.InstanceID)
		default:
			parsed, err := card.Parse(record.Card)
			if err != nil {
				s.options.Logger.Error("a worker's model card cannot be read; it gets no requests", "worker", record.InstanceID, "error", err)
				return
			}
			s.warnOfBlockSize(record.InstanceID, parsed)
			s.members.cards[record.InstanceID] = parsed
		}
	default: // all that was there has come
		return
	}
	s.update()
}

// warnOfBlockSize tells an operator that prompts will never be found in a worker's cache.
func (s *Service) warnOfBlockSize(id uint64, c *card.Card) {
	if size := int(c.BlockSize); size != 0 && size != s.options.BlockSize {
		s.options.Logger.Warn("a worker's blocks have another size than --router-block-size says: its cache is not understood",
			"worker", id, "block_size", size, "router_block_size", s.options.BlockSize)
	}
}

// update tells the pool who is there. The caller holds the mutex.
func (s *Service) update() {
	set := s.members.set(&s.options)
	targets := make(map[uint64]inference.Target, len(set.Members))
	workers := make([]router.Worker, 0, len(set.Members))
	for _, member := range set.Members {
		target, reached := s.options.Workers.Target(member.Instance)
		if !reached {
			s.options.Logger.Error("a worker is registered for a request plane that this router does not use (--request-plane)", "worker", member.Instance.InstanceID)
			continue
		}
		targets[member.Instance.InstanceID] = target
		workers = append(workers, s.options.WorkerOf(member))
	}
	old := *s.targets.Load()
	s.targets.Store(&targets)
	s.pool.SetWorkers(workers)
	for id := range old {
		if _, still := targets[id]; !still {
			s.options.Workers.Gone(id)
		}
	}
	if s.watching != nil {
		s.watching.Members(set)
	}
	if len(workers) > 0 {
		select {
		case <-s.first:
		default:
			close(s.first)
		}
	}
}
