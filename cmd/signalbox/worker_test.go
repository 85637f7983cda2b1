package main

import (
	"testing"

	"signalbox/settings"
)

// Two workers with the built-in model, each in a process of its own, serve as one set: their cards have one checksum.
func TestWorkersWithTheBuiltInModelServeTogether(t *testing.T) {
	s, _, err := settings.LoadWorker(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	checksums := make(map[string]bool)
	for range 2 {
		model, cleanup, err := openModel(s.ModelPath, "demo")
		if err != nil {
			t.Fatal(err)
		}
		defer cleanup()
		c, _, err := workerCard(s, model)
		if err != nil {
			t.Fatal(err)
		}
		checksums[c.Checksum()] = true
	}
	if len(checksums) != 1 {
		t.Errorf("two processes made %d different checksums", len(checksums))
	}
}
