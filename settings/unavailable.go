package settings

import "fmt"

// Unavailable lists settings whose feature this build does not have yet, with the reason that the operator is shown.
//
// A key is a setting's key in the configuration dump, which switches off every value but the default
// ("kserve_grpc_server"), or key=value, which switches off that one value ("discovery_backend=kubernetes"). Asking
// for such a value by flag, variable, preset or policy file stops the start with "not available yet". A default is never refused.
//
// An entry goes away together with the change that makes its feature work.
var Unavailable = map[string]string{
	"response_plane=quic": "the QUIC response plane",
}

// unavailable checks every setting that is not at its default against Unavailable.
func (t *table) unavailable() []error {
	var problems []error
	for _, s := range t.settings {
		shown := fmt.Sprint(s.value.show())
		if s.origin.Kind == FromDefault || shown == fmt.Sprint(s.value.fallback()) {
			continue
		}
		reason, refused := Unavailable[s.name]
		if !refused {
			reason, refused = Unavailable[s.name+"="+shown]
		}
		if refused {
			problems = append(problems, &UnavailableError{Setting: s.name, Spelled: s.spelled(), Value: s.printable(shown), Reason: reason})
		}
	}
	return problems
}
