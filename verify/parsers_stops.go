package verify

// stops checks recorded answers without parsers: detokenising and stops.
func stops(string) Result { return Result{} }
