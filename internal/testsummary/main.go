// Command testsummary reads the JSON output of go test and prints what failed and was skipped, and one closing line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: testsummary FILE")
		os.Exit(2)
	}
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	defer file.Close()
	output := make(map[string]*strings.Builder)
	passed, failed, skipped := 0, 0, 0
	skips := make(map[string]int)
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		var e event
		if json.Unmarshal(scanner.Bytes(), &e) != nil {
			fmt.Println(scanner.Text())
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output":
			if output[key] == nil {
				output[key] = &strings.Builder{}
			}
			output[key].WriteString(e.Output)
		case "build-output":
			fmt.Print(e.Output)
		case "pass":
			if e.Test != "" {
				passed++
			}
			delete(output, key)
		case "skip":
			if e.Test != "" {
				skipped++
				skips[reason(output[key])]++
			}
			delete(output, key)
		case "fail":
			failed++
			fmt.Printf("FAIL %s\n", key)
			if output[key] != nil {
				fmt.Print(output[key].String())
			}
		}
	}
	for why, count := range skips {
		fmt.Printf("skipped %d: %s\n", count, why)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// reason is the text that the skipped test gave.
func reason(output *strings.Builder) string {
	if output == nil {
		return "no reason given"
	}
	for line := range strings.Lines(output.String()) {
		line = strings.TrimSpace(line)
		if _, text, ok := strings.Cut(line, ".go:"); ok {
			if _, text, ok := strings.Cut(text, ": "); ok {
				return text
			}
		}
	}
	return strings.TrimSpace(output.String())
}
