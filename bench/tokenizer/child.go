package main

import (
	_ "embed"
	"encoding/json"
	"os"
	"strings"
	"syscall"

	"signalbox/preprocess/tokenizer"
)

// referenceScript does for the other libraries what measure does for this one.
//
//go:embed reference.py
var referenceScript []byte

// processorTime is the time in seconds that the process has used.
func processorTime() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

// peakMemory is the most memory in megabytes that the process has had.
func peakMemory() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return float64(usage.Maxrss) / 1000
}

// readParts reads a file of prompts: those to warm up with and those to measure.
func readParts(path string) (warm, measured []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var parts struct{ Warm, Measured []string }
	err = json.Unmarshal(text, &parts)
	return parts.Warm, parts.Measured, err
}

// measure prints the figures of one tokenizer file and one file of texts.
func measure(path, texts string) error {
	warm, measured, err := readParts(texts)
	if err != nil {
		return err
	}
	var f figures
	start := processorTime()
	first, err := tokenizer.Load(path)
	if err != nil {
		return err
	}
	f.Load = processorTime() - start
	ids := make([]uint32, 0, 1<<16)
	start = processorTime()
	for _, s := range measured {
		ids = first.Encode(ids[:0], s, false)
	}
	f.Cold = processorTime() - start
	f.Memory = peakMemory()

	second, err := tokenizer.Load(path)
	if err != nil {
		return err
	}
	for _, s := range warm {
		ids = second.Encode(ids[:0], strings.Clone(s), false)
	}
	start = processorTime()
	for _, s := range measured {
		ids = second.Encode(ids[:0], s, false)
	}
	f.Warm = processorTime() - start
	for _, s := range measured {
		for _, id := range second.Encode(ids[:0], s, false) {
			f.Sum = f.Sum*31 + uint64(id)
			f.Tokens++
		}
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}
