package policy

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"

	"signalbox/router/selection"
)

// Stage is the part that a pool of workers plays.
type Stage string

// The stages.
const (
	Aggregated Stage = "aggregated"
	Prefill    Stage = "prefill"
	Decode     Stage = "decode"
	Encode     Stage = "encode"
)

var stages = []Stage{Aggregated, Prefill, Decode, Encode}

// Selection says which worker-selection policies there are and which stage uses which.
type Selection struct {
	// Stages name an instance each, or "default"; a stage that is not there uses the built-in policy.
	Stages    map[Stage]string
	Instances []Instance
}

// Instance is a worker-selection policy with its parameters.
type Instance struct {
	Name, Type string
	// Parameters is a YAML mapping; nil when there are none.
	Parameters []byte
}

// Wish is the name of an instance that something outside the file asks for. Names are trimmed; an empty one asks for nothing.
type Wish struct {
	// Stage is the only stage that the wish is about; "" for all.
	Stage Stage
	Name  string
}

// Named returns the name of the instance for a stage: that of the first wish about the stage, else the file's, else "default". s may
// be nil.
func (s *Selection) Named(stage Stage, wishes ...Wish) string {
	for _, wish := range wishes {
		if name := strings.TrimSpace(wish.Name); name != "" && (wish.Stage == "" || wish.Stage == stage) {
			return name
		}
	}
	if s != nil && s.Stages[stage] != "" {
		return s.Stages[stage]
	}
	return selection.DefaultName
}

// New makes the policy called name; nil for the built-in one. catalog are the types there are. s may be nil. The error names what is
// there to choose from.
func (s *Selection) New(name string, catalog []selection.Type) (selection.Policy, error) {
	if name == selection.DefaultName {
		return nil, nil
	}
	var names []string
	if s != nil {
		for i := range s.Instances {
			if instance := &s.Instances[i]; instance.Name == name {
				return selection.New(catalog, instance.Type, instance.Parameters)
			}
			names = append(names, s.Instances[i].Name)
		}
	}
	configured := strings.Join(names, ", ")
	if configured == "" {
		configured = "<none>"
	}
	return nil, fmt.Errorf("unknown worker-selection instance %q; configured instances: %s", name, configured)
}

type rawSelection struct {
	node
	stages    map[Stage]node
	instances []rawInstance
}

type rawInstance struct {
	node
	name, kind             string
	nameAt, kindAt, values node
}

var (
	selectionKeys = []string{"aggregated", "prefill", "decode", "encode", "instances"}
	instanceKeys  = []string{"name", "type", "parameters"}
)

func readSelection(n node) *rawSelection {
	s := &rawSelection{node: n, stages: make(map[Stage]node)}
	for _, m := range n.members(selectionKeys) {
		switch {
		case m.key == "instances":
			for _, element := range m.elements() {
				s.instances = append(s.instances, readInstance(element))
			}
		case m.present():
			m.text()
			s.stages[Stage(m.key)] = m.node
		}
	}
	return s
}

func readInstance(n node) rawInstance {
	i := rawInstance{node: n}
	for _, m := range n.members(instanceKeys) {
		switch m.key {
		case "name":
			i.name, i.nameAt = m.text(), m.node
		case "type":
			i.kind, i.kindAt = m.text(), m.node
		case "parameters":
			i.values = m.node
		}
	}
	n.needs(instanceKeys, i.nameAt.present(), i.kindAt.present())
	return i
}

func (s *rawSelection) check() (*Selection, *Error) {
	if len(s.stages) == 0 && len(s.instances) == 0 {
		return nil, s.breaks("worker_selection must define an instance or an aggregated, prefill, decode, or encode selection")
	}
	made := &Selection{Stages: make(map[Stage]string)}
	known := map[string]bool{selection.DefaultName: true}
	for i := range s.instances {
		instance := &s.instances[i]
		if problem := instance.nameAt.identifier("worker_selection", "instance", instance.name); problem != nil {
			return nil, problem
		}
		if problem := instance.kindAt.identifier("worker_selection", "policy type", instance.kind); problem != nil {
			return nil, problem
		}
		if instance.name == selection.DefaultName {
			return nil, instance.nameAt.breaks("worker_selection instance name 'default' is reserved for Dynamo's built-in selector")
		}
		if known[instance.name] {
			return nil, instance.nameAt.breaks("worker_selection contains duplicate instance %q", instance.name)
		}
		known[instance.name] = true
		parameters, problem := instance.parameters()
		if problem != nil {
			return nil, problem
		}
		made.Instances = append(made.Instances, Instance{Name: instance.name, Type: instance.kind, Parameters: parameters})
	}
	for _, stage := range stages {
		where, named := s.stages[stage]
		if !named {
			continue
		}
		name := where.text()
		if problem := where.identifier("worker_selection", string(stage)+" selection", name); problem != nil {
			return nil, problem
		}
		if !known[name] {
			return nil, where.breaks("worker_selection %s %q does not name a configured instance", stage, name)
		}
		made.Stages[stage] = name
	}
	return made, nil
}

// parameters returns the instance's parameters as a YAML mapping of their own.
func (i *rawInstance) parameters() ([]byte, *Error) {
	if !i.values.present() {
		return nil, nil
	}
	mapping, is := i.values.any().(yaml.MapSlice)
	if !is {
		return nil, i.values.breaks("worker_selection instance %q parameters must be a YAML mapping", i.name)
	}
	if len(mapping) == 0 {
		return nil, i.in.failure()
	}
	text, err := yaml.Marshal(mapping)
	if err != nil {
		return nil, i.values.breaks("worker_selection instance %q parameters: %v", i.name, err)
	}
	return text, i.in.failure()
}

func (d *document) failure() *Error { return d.problem }
