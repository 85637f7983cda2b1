package main

import "signalbox/router/selection"

// policies are the types of worker-selection policies that policy files can name. Add your own to the list; docs/custom-policy.md
// shows how.
func policies() []selection.Type { return selection.Catalog() }
