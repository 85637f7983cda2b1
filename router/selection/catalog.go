package selection

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"

	"signalbox/router/cost"
)

// DefaultName is the reserved name of the built-in policy with the router's own weights.
const DefaultName = "default"

// Type is a kind of policy that configuration can name.
type Type struct {
	Name string
	// New makes an instance for one pool. parameters is the YAML mapping of the instance's parameters, nil when it has none;
	// [DecodeParameters] reads it. The error says which parameter is wrong and what would be right.
	New func(parameters []byte) (Policy, error)
}

// Catalog returns the built-in types. A program with policies of its own appends to it.
func Catalog() []Type {
	return []Type{
		{Name: "dynamo-default-cost-fn", New: newDefault},
		{Name: "dynamo-two-tier-cost-fn", New: newTwoTier},
	}
}

// New makes an instance of the type called name. An unknown one is an error that lists those there are.
func New(catalog []Type, name string, parameters []byte) (Policy, error) {
	var linked []string
	for _, kind := range catalog {
		if kind.Name == name {
			policy, err := kind.New(parameters)
			if err != nil {
				return nil, fmt.Errorf("invalid parameters for worker-selection policy type %q: %w", name, err)
			}
			return policy, nil
		}
		linked = append(linked, kind.Name)
	}
	list := strings.Join(linked, ", ")
	if list == "" {
		list = "<none>"
	}
	return nil, fmt.Errorf("unknown worker-selection policy type %q; linked policy types: %s", name, list)
}

// DecodeParameters reads a YAML mapping into a struct with yaml tags. Keys that the struct does not have are errors that name
// the key and the ones there are.
func DecodeParameters(parameters []byte, into any) error {
	if len(bytes.TrimSpace(parameters)) == 0 {
		return nil
	}
	err := yaml.NewDecoder(bytes.NewReader(parameters), yaml.Strict()).Decode(into)
	if errors.Is(err, io.EOF) {
		return nil
	}
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%s, expected one of %s", unknown.Message, strings.Join(keys(into), ", "))
	}
	return err
}

func newTwoTier(parameters []byte) (Policy, error) {
	values := DefaultTwoTier()
	var read struct {
		CacheThreshold      *float64 `yaml:"cache_threshold"`
		BalanceAbsThreshold *uint64  `yaml:"balance_abs_threshold"`
		BalanceRelThreshold *float64 `yaml:"balance_rel_threshold"`
	}
	if err := DecodeParameters(parameters, &read); err != nil {
		return nil, err
	}
	assign(&values.CacheThreshold, read.CacheThreshold)
	assign(&values.BalanceAbsThreshold, read.BalanceAbsThreshold)
	assign(&values.BalanceRelThreshold, read.BalanceRelThreshold)
	if err := values.Validate(); err != nil {
		return nil, err
	}
	return &TwoTier{TwoTierParameters: values}, nil
}

func newDefault(parameters []byte) (Policy, error) {
	weights := cost.DefaultWeights()
	weights.SharedMultiplier = 0.5
	var read struct {
		OverlapCredit       *float64 `yaml:"overlap_score_credit"`
		OverlapCreditDecay  *float64 `yaml:"overlap_score_credit_decay"`
		PrefillLoadScale    *float64 `yaml:"prefill_load_scale"`
		ActiveRequestWeight *float64 `yaml:"decode_active_request_weight"`
		HostWeight          *float64 `yaml:"host_cache_hit_weight"`
		DiskWeight          *float64 `yaml:"disk_cache_hit_weight"`
		SharedMultiplier    *float64 `yaml:"shared_cache_multiplier"`
		Temperature         *float64 `yaml:"router_temperature"`
	}
	if err := DecodeParameters(parameters, &read); err != nil {
		return nil, err
	}
	assign(&weights.OverlapCredit, read.OverlapCredit)
	assign(&weights.OverlapCreditDecay, read.OverlapCreditDecay)
	assign(&weights.PrefillLoadScale, read.PrefillLoadScale)
	assign(&weights.ActiveRequestWeight, read.ActiveRequestWeight)
	assign(&weights.HostWeight, read.HostWeight)
	assign(&weights.DiskWeight, read.DiskWeight)
	assign(&weights.SharedMultiplier, read.SharedMultiplier)
	assign(&weights.Temperature, read.Temperature)
	if !(weights.OverlapCredit >= 0) || math.IsInf(weights.OverlapCredit, 0) {
		return nil, errors.New("overlap_score_credit must be finite and non-negative")
	}
	if err := weights.Validate(); err != nil {
		return nil, err
	}
	return &Default{Weights: &weights}, nil
}

// keys lists the yaml tags of a struct.
func keys(of any) []string {
	var list []string
	shape := reflect.TypeOf(of).Elem()
	for i := range shape.NumField() {
		name, _, _ := strings.Cut(shape.Field(i).Tag.Get("yaml"), ",")
		list = append(list, name)
	}
	return list
}

func assign[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}
