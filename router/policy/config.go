package policy

import (
	"fmt"
	"math"
	"os"
	"slices"

	"signalbox/router/queue"
)

// Config is a policy file.
type Config struct {
	// Root is the profile of models without one of their own; nil when the file has none.
	Root *Profile
	// Models are the profiles by model name. Each is complete: nothing is inherited.
	Models map[string]*Profile
	// Selection names worker-selection policies; nil when the file does not.
	Selection *Selection
	// Router are settings of all KV routers, a JSON object with names of their configuration; nil when the file has none. They are
	// stronger than flags and presets.
	Router []byte
}

// Profile returns the profile of a model: its own, else the root one, else nil for the synthetic class.
func (c *Config) Profile(model string) *Profile {
	if c == nil {
		return nil
	}
	if own := c.Models[model]; own != nil {
		return own
	}
	return c.Root
}

// Load reads a policy file.
func Load(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read router policy config %s: %w", path, err)
	}
	return Parse(path, text)
}

// Parse reads the text of a policy file; name stands for it in errors, which are *[Error].
func Parse(name string, text []byte) (*Config, error) {
	root, err := open(name, text)
	if err != nil {
		return nil, err
	}
	read := readFile(root)
	if root.in.problem != nil {
		return nil, root.in.problem
	}
	config, problem := read.check()
	if problem != nil {
		return nil, problem
	}
	return config, nil
}

// The raw types below are the file as written, with the place of everything that a rule may be broken at.

type rawFile struct {
	node
	root      rawProfile
	models    []rawModel
	selection *rawSelection
	router    []byte
}

type rawProfile struct {
	node
	location   string // how messages call it
	family     node
	buckets    node
	classes    node
	familyName string
	bucketList []rawBucket
	classList  []rawClass
}

type rawModel struct {
	name string
	rawProfile
}

type rawBucket struct {
	node
	minTokens   uint64
	minTokensAt node
	name        string
	nameAt      node
}

type rawClass struct {
	node
	name                     string
	family, bucket           *string
	order                    queue.Order
	quantum                  uint64
	at                       map[string]node // of each key that is there
	busyTokens               *uint64
	busyFraction             *float64
	requests, tokens, cached *uint64
}

var (
	rootKeys    = []string{"default_policy_family", "policy_classes", "uncached_isl_buckets", "models", "worker_selection", "router"}
	profileKeys = rootKeys[:3]
	bucketKeys  = []string{"min_tokens", "bucket"}
	classKeys   = []string{"name", "policy_family", "cache_bucket", "queue_policy", "quantum", "prefill_busy_threshold", "prefill_busy_threshold_frac",
		"request_queue_limit_per_worker", "raw_isl_token_queue_limit_per_worker", "cached_token_queue_limit_per_worker"}
)

func readFile(n node) rawFile {
	file := rawFile{node: n, root: rawProfile{node: n, location: "root"}}
	for _, m := range n.members(rootKeys) {
		switch m.key {
		case "models":
			for _, model := range m.members(nil) {
				profile := rawProfile{node: model.node, location: fmt.Sprintf("model %q", model.key)}
				for _, field := range model.members(profileKeys) {
					profile.read(field)
				}
				file.models = append(file.models, rawModel{model.key, profile})
			}
		case "worker_selection":
			if m.present() {
				file.selection = readSelection(m.node)
			}
		case "router":
			if m.present() {
				file.router = readRouter(m.node)
			}
		default:
			file.root.read(m)
		}
	}
	return file
}

func (p *rawProfile) read(m member) {
	if !m.present() {
		return
	}
	switch m.key {
	case "default_policy_family":
		p.family, p.familyName = m.node, m.text()
	case "uncached_isl_buckets":
		p.buckets = m.node
		for _, element := range m.elements() {
			p.bucketList = append(p.bucketList, readBucket(element))
		}
	case "policy_classes":
		p.classes = m.node
		for _, element := range m.elements() {
			p.classList = append(p.classList, readClass(element))
		}
	}
}

func readBucket(n node) rawBucket {
	b := rawBucket{node: n}
	for _, m := range n.members(bucketKeys) {
		switch m.key {
		case "min_tokens":
			b.minTokens, b.minTokensAt = m.count(), m.node
		case "bucket":
			b.name, b.nameAt = m.text(), m.node
		}
	}
	n.needs(bucketKeys, b.minTokensAt.present(), b.nameAt.present())
	return b
}

// needs reports the first key that is not there.
func (n node) needs(keys []string, present ...bool) {
	for i, there := range present {
		if !there {
			n.fail("missing field `%s`", keys[i])
		}
	}
}

func readClass(n node) rawClass {
	c := rawClass{node: n, at: make(map[string]node)}
	for _, m := range n.members(classKeys) {
		if !m.present() {
			continue
		}
		c.at[m.key] = m.node
		switch m.key {
		case "name":
			c.name = m.text()
		case "policy_family":
			c.family = pointer(m.text())
		case "cache_bucket":
			c.bucket = pointer(m.text())
		case "queue_policy":
			c.order = m.order()
		case "quantum":
			c.quantum = m.count()
		case "prefill_busy_threshold":
			c.busyTokens = pointer(m.count())
		case "prefill_busy_threshold_frac":
			c.busyFraction = pointer(m.number())
		case "request_queue_limit_per_worker":
			c.requests = pointer(m.count())
		case "raw_isl_token_queue_limit_per_worker":
			c.tokens = pointer(m.count())
		case "cached_token_queue_limit_per_worker":
			c.cached = pointer(m.count())
		}
	}
	n.needs([]string{"name", "quantum"}, c.at["name"].present(), c.at["quantum"].present())
	return c
}

func pointer[T any](value T) *T { return &value }

func (n node) order() queue.Order {
	word := n.text()
	for _, order := range []queue.Order{queue.FCFS, queue.WSPT, queue.LCFS} {
		if order.String() == word {
			return order
		}
	}
	n.fail("unknown variant `%s`, expected one of `fcfs`, `wspt`", word)
	return queue.FCFS
}

func (f *rawFile) check() (*Config, *Error) {
	config := &Config{Router: f.router}
	given := 0
	for _, part := range []node{f.root.family, f.root.buckets, f.root.classes} {
		if part.present() {
			given++
		}
	}
	if given > 0 && given < 3 {
		return nil, f.breaks("root profile must specify default_policy_family, uncached_isl_buckets, and policy_classes when any root profile field is present")
	}
	if given == 0 && len(f.models) == 0 && f.selection == nil && f.router == nil {
		return nil, f.breaks("router policy config must define a root profile, at least one model profile, or worker_selection")
	}
	if given == 3 {
		profile, problem := f.root.check()
		if problem != nil {
			return nil, problem
		}
		config.Root = profile
	}
	for i := range f.models {
		m := &f.models[i]
		if m.name == "" {
			return nil, m.breaks("model profile name must not be empty")
		}
		m.needs([]string{"default_policy_family", "uncached_isl_buckets", "policy_classes"}, m.family.present(), m.buckets.present(), m.classes.present())
		if m.in.problem != nil {
			return nil, m.in.problem
		}
		profile, problem := m.check()
		if problem != nil {
			return nil, problem
		}
		if config.Models == nil {
			config.Models = make(map[string]*Profile)
		}
		config.Models[m.name] = profile
	}
	if f.selection != nil {
		selection, problem := f.selection.check()
		if problem != nil {
			return nil, problem
		}
		config.Selection = selection
	}
	return config, nil
}

// identifier checks a name that will stand in metrics.
func (n node) identifier(where, kind, name string) *Error {
	if where != "" {
		where += " "
	}
	valid := name != ""
	for _, c := range []byte(name) {
		valid = valid && (c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-')
	}
	if valid {
		return nil
	}
	return n.breaks("%s%s name %q must match [A-Za-z0-9_.-]+", where, kind, name)
}

// check makes the profile, or says which rule is broken.
func (p *rawProfile) check() (*Profile, *Error) {
	if problem := p.family.identifier(p.location, "policy family", p.familyName); problem != nil {
		return nil, problem
	}
	if len(p.classList) == 0 {
		return nil, p.classes.breaks("%s policy_classes must not be empty", p.location)
	}
	made := &Profile{explicit: make(map[string]int), families: make(map[string][]int)}
	if problem := p.checkBuckets(made); problem != nil {
		return nil, problem
	}
	for i := range p.classList {
		if problem := p.checkClass(made, &p.classList[i]); problem != nil {
			return nil, problem
		}
	}
	return made, p.checkFamilies(made)
}

func (p *rawProfile) checkBuckets(made *Profile) *Error {
	if len(p.bucketList) == 0 {
		return p.buckets.breaks("%s uncached_isl_buckets must not be empty", p.location)
	}
	var names []string
	for i := range p.bucketList {
		b := &p.bucketList[i]
		if problem := b.nameAt.identifier(p.location, "cache bucket", b.name); problem != nil {
			return problem
		}
		if slices.Contains(names, b.name) {
			return b.nameAt.breaks("%s contains duplicate cache bucket %q", p.location, b.name)
		}
		names = append(names, b.name)
		if i == 0 && b.minTokens != 0 {
			return b.minTokensAt.breaks("%s uncached_isl_buckets must start at min_tokens 0", p.location)
		}
		if i > 0 && b.minTokens <= p.bucketList[i-1].minTokens {
			return b.minTokensAt.breaks("%s uncached_isl_buckets min_tokens must be strictly increasing", p.location)
		}
		made.floors = append(made.floors, b.minTokens)
	}
	return nil
}

func (p *rawProfile) checkClass(made *Profile, c *rawClass) *Error {
	if problem := c.at["name"].identifier(p.location, "policy class", c.name); problem != nil {
		return problem
	}
	if slices.ContainsFunc(made.Classes, func(other Class) bool { return other.Name == c.name }) {
		return c.at["name"].breaks("%s contains duplicate policy class %q", p.location, c.name)
	}
	fail := func(key, format string, args ...any) *Error {
		where, there := c.at[key]
		if !there {
			where = c.node
		}
		return where.breaks("%s policy class %q "+format, append([]any{p.location, c.name}, args...)...)
	}
	switch {
	case c.quantum == 0:
		return fail("quantum", "quantum must be greater than zero")
	case c.order != queue.FCFS && c.order != queue.WSPT:
		return fail("queue_policy", "queue_policy must be fcfs or wspt")
	case c.busyFraction != nil && (!(*c.busyFraction >= 0) || math.IsInf(*c.busyFraction, 0)):
		return fail("prefill_busy_threshold_frac", "prefill_busy_threshold_frac must be finite and non-negative")
	case (c.family == nil) != (c.bucket == nil):
		return fail("", "must specify both policy_family and cache_bucket or neither for an explicit class")
	}
	index := len(made.Classes)
	made.Classes = append(made.Classes, Class{
		Class: queue.Class{Name: c.name, Order: c.order, Quantum: c.quantum,
			Limits: queue.Limits{Requests: c.requests, RawTokens: c.tokens, CachedTokens: c.cached}},
		BusyTokens: c.busyTokens, BusyFraction: c.busyFraction,
	})
	if c.family == nil {
		made.explicit[c.name] = index
		return nil
	}
	if problem := c.at["policy_family"].identifier(p.location, "policy family", *c.family); problem != nil {
		return problem
	}
	if problem := c.at["cache_bucket"].identifier(p.location, "cache bucket", *c.bucket); problem != nil {
		return problem
	}
	bucket := slices.IndexFunc(p.bucketList, func(b rawBucket) bool { return b.name == *c.bucket })
	if bucket < 0 {
		return fail("cache_bucket", "references unknown cache bucket %q", *c.bucket)
	}
	cells := made.families[*c.family]
	if cells == nil {
		cells = make([]int, len(p.bucketList))
		for i := range cells {
			cells[i] = -1
		}
		made.families[*c.family] = cells
	}
	if cells[bucket] >= 0 {
		return c.breaks("%s contains duplicate policy classes for family %q and bucket %q", p.location, *c.family, *c.bucket)
	}
	cells[bucket] = index
	return nil
}

func (p *rawProfile) checkFamilies(made *Profile) *Error {
	for i := range p.classList { // in the file's order, so that the same file gives the same message
		c := &p.classList[i]
		if c.family == nil {
			continue
		}
		for bucket, index := range made.families[*c.family] {
			if index < 0 {
				return p.classes.breaks("%s is missing a policy class for family %q and bucket %q", p.location, *c.family, p.bucketList[bucket].name)
			}
		}
	}
	fallback, known := made.families[p.familyName]
	if !known {
		return p.family.breaks("%s default_policy_family %q does not name a configured family", p.location, p.familyName)
	}
	made.fallback = fallback
	for i := range p.classList {
		c := &p.classList[i]
		if _, collides := made.families[c.name]; collides && c.family == nil {
			return c.at["name"].breaks("%s explicit policy class %q collides with a policy family", p.location, c.name)
		}
	}
	return nil
}
