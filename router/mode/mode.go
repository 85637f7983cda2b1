package mode

import (
	"fmt"
	"strings"
)

// Mode names a way of choosing, as on the command line.
type Mode string

const (
	// RoundRobin takes free workers in turn.
	RoundRobin Mode = "round-robin"
	// Random takes any free worker with equal chance.
	Random Mode = "random"
	// PowerOfTwo draws two free workers and takes the one with fewer requests in flight.
	PowerOfTwo Mode = "power-of-two"
	// LeastLoaded takes the free worker with the fewest requests in flight.
	LeastLoaded Mode = "least-loaded"
	// DeviceAwareWeighted splits work between workers with and without accelerator by their throughput ratio.
	DeviceAwareWeighted Mode = "device-aware-weighted"
	// Direct sends each request where it says.
	Direct Mode = "direct"
)

// Modes lists the modes of this package.
var Modes = []Mode{RoundRobin, Random, PowerOfTwo, LeastLoaded, DeviceAwareWeighted, Direct}

// Parse returns the mode called word.
func Parse(word string) (Mode, error) {
	var names []string
	for _, mode := range Modes {
		if string(mode) == word {
			return mode, nil
		}
		names = append(names, string(mode))
	}
	return "", fmt.Errorf("router mode %q is none of %s", word, strings.Join(names, ", "))
}

// counts tells whether the mode compares requests in flight and so has to count them.
func (m Mode) counts() bool {
	return m == PowerOfTwo || m == LeastLoaded || m == DeviceAwareWeighted
}
