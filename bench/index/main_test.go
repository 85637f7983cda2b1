package main

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"signalbox/bench/internal/trace"
	"signalbox/kvindex"
)

// writeTrace writes conversations that go on, in the form of the recorded hour.
func writeTrace(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.jsonl.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	writer := gzip.NewWriter(file)
	for turn := range 4 {
		for talk := range 5 {
			line := "0"
			for i := range 2 * (turn + 1) {
				line += fmt.Sprintf(",%d", 100*(talk+1)+i)
			}
			fmt.Fprintf(writer, `{"timestamp":0,"input_length":9,"output_length":9,"hash_ids":[%s]}`+"\n", line)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

var small = options{workers: 3, capacity: 16, operations: 200, threads: 2, shards: 2, rounds: 1}

func TestRun(t *testing.T) {
	if err := run(small, writeTrace(t), "512,64", ""); err != nil {
		t.Error(err)
	}
	if err := run(small, filepath.Join(t.TempDir(), "absent"), "512", ""); err == nil {
		t.Error("an absent trace passes")
	}
	if err := run(small, writeTrace(t), "512,100", ""); err == nil {
		t.Error("blocks of 100 tokens pass")
	}
	if err := run(options{}, writeTrace(t), "512", ""); err == nil {
		t.Error("no workers pass")
	}
}

// The engines' events are such that the index holds what the caches hold: every event applies, and the caches are full at the end.
func TestSimulatedEngines(t *testing.T) {
	requests, err := trace.Read(writeTrace(t))
	if err != nil {
		t.Fatal(err)
	}
	o := small
	o.split = 2
	work := simulate(requests, o)
	index, err := kvindex.New(kvindex.Options{Shards: o.shards})
	if err != nil {
		t.Fatal(err)
	}
	asked, hits := 0, uint32(0)
	for _, phase := range [][][]step{work.filling, work.full} {
		for _, steps := range phase {
			for _, s := range steps {
				var matches kvindex.Matches
				index.Find(&matches, s.query)
				for _, match := range matches.Ranks {
					hits += match.Total()
				}
				asked += len(s.query.Locals)
				for _, event := range s.events {
					if err := index.Apply(event); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	if held := index.Stats().Total(); held != o.workers*o.capacity {
		t.Errorf("%d blocks are held, the caches have room for %d", held, o.workers*o.capacity)
	}
	if hits == 0 || asked == 0 {
		t.Errorf("%d of %d blocks were found", hits, asked)
	}
}
