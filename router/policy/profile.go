package policy

import "signalbox/router/queue"

// Class is a class of waiting requests and the load from which on its requests wait.
type Class struct {
	queue.Class
	// BusyTokens and BusyFraction say when a rank is busy for the class: its active prefill tokens exceed the number, or the fraction
	// of what the rank computes per step. With both either is enough; without any the class never waits.
	BusyTokens   *uint64
	BusyFraction *float64
}

// UnknownBatch stands for the tokens per step of a rank that did not publish them.
const UnknownBatch = 10_000_000

// Waits tells whether requests of the class ever wait.
func (c *Class) Waits() bool { return c.BusyTokens != nil || c.BusyFraction != nil }

// Busy tells whether a rank with that many active prefill tokens is busy for the class. maxBatched is the rank's tokens per step, 0
// when it is not known.
func (c *Class) Busy(active, maxBatched uint64) bool {
	if c.BusyTokens != nil && active > *c.BusyTokens {
		return true
	}
	if c.BusyFraction == nil {
		return false
	}
	if maxBatched == 0 {
		maxBatched = UnknownBatch
	}
	return float64(active) > *c.BusyFraction*float64(maxBatched)
}

// Profile is the classes of a model. It does not change.
type Profile struct {
	Classes []Class

	floors   []uint64         // of the buckets
	explicit map[string]int   // classes that clients may name
	families map[string][]int // classes by bucket
	fallback []int            // the default family's
}

// SyntheticName is the name of the only class of a router without policy file.
const SyntheticName = "default"

// Synthetic returns the profile of a router without policy file: one class. threshold is the busy fraction; nil never waits.
func Synthetic(order queue.Order, threshold *float64) *Profile {
	return &Profile{
		Classes:  []Class{{Class: queue.Class{Name: SyntheticName, Order: order, Quantum: 1}, BusyFraction: threshold}},
		floors:   []uint64{0},
		fallback: []int{0},
	}
}

// Waits tells whether any class of the profile ever waits.
func (p *Profile) Waits() bool {
	for i := range p.Classes {
		if p.Classes[i].Waits() {
			return true
		}
	}
	return false
}

// Queue returns an empty queue of the profile's classes.
func (p *Profile) Queue() *queue.Queue {
	classes := make([]queue.Class, len(p.Classes))
	for i := range classes {
		classes[i] = p.Classes[i].Class
	}
	return queue.New(classes)
}

// Choice is what a client's wish leaves open.
type Choice struct {
	profile *Profile
	class   int   // where the wish settles it
	family  []int // otherwise the classes by bucket
}

// Select returns what a wish comes to: an explicit class, a family, or the default family for anything else.
func (p *Profile) Select(wish string) Choice {
	if index, explicit := p.explicit[wish]; explicit {
		return Choice{profile: p, class: index}
	}
	family := p.fallback
	if wished, known := p.families[wish]; known {
		family = wished
	}
	if len(family) == 1 {
		return Choice{profile: p, class: family[0]}
	}
	return Choice{profile: p, family: family}
}

// NeedsCache tells whether the class depends on what is cached.
func (c Choice) NeedsCache() bool { return c.family != nil }

// Class returns the index of the class for a prompt with that many tokens that no worker has cached.
func (c Choice) Class(uncached uint64) int {
	if c.family == nil {
		return c.class
	}
	bucket := 0
	for bucket+1 < len(c.profile.floors) && c.profile.floors[bucket+1] <= uncached {
		bucket++
	}
	return c.family[bucket]
}
