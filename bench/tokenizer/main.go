// Command tokenizer measures signalbox's tokenizer beside Hugging Face tokenizers and fastokens: the same files, the same text, one
// thread each, in one run. It prints a Markdown table. Speed is of processor time, so that it holds on a busy machine, too.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

// models are the names of the tokenizer folders to measure.
var models = []string{"qwen3", "llama3_2", "gptoss", "deepseek_v3", "gemma3"}

// libraries in the order of the table's columns.
var libraries = []string{"signalbox", "fastokens", "tokenizers"}

func main() {
	python := flag.String("python", os.Getenv("SIGNALBOX_BENCH_PYTHON"), "Python with tokenizers and fastokens; empty measures signalbox alone")
	folder := flag.String("models", cmp.Or(os.Getenv("SIGNALBOX_MODELS"), filepath.Join(".cache", "models")), "folder of tok/NAME/tokenizer.json")
	only := flag.String("only", strings.Join(models, ","), "tokenizers to measure")
	size := flag.Int("size", 1000, "kilobytes of each kind of text to measure, and as many to warm up")
	rounds := flag.Int("rounds", 3, "how often each is measured; the median counts. Hugging Face tokenizers once")
	child := flag.String("child", "", "for the program's own use: measures one tokenizer file")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	err := func() error {
		if *child != "" {
			return measure(*child, flag.Arg(0))
		}
		return run(ctx, *python, *folder, strings.Split(*only, ","), *size*1000, *rounds)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// figures of one library with one tokenizer and one kind of text.
type figures struct {
	Load   float64 `json:"load"`   // seconds to read the file
	Cold   float64 `json:"cold"`   // seconds for the text, at first sight
	Warm   float64 `json:"warm"`   // seconds for the text, after other text of its kind
	Memory float64 `json:"memory"` // megabytes of the process at its peak, one tokenizer loaded, cold text encoded
	Sum    uint64  `json:"sum"`    // of the ids, to see that all did the same
	Tokens int     `json:"tokens"`
}

func run(ctx context.Context, python, folder string, names []string, size, rounds int) error {
	dir, err := os.MkdirTemp("", "tokenizer-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kinds, err := writeTexts(dir, size)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	contenders := libraries
	if python == "" {
		contenders = libraries[:1]
	}
	script := filepath.Join(dir, "reference.py")
	if err := os.WriteFile(script, referenceScript, 0o600); err != nil {
		return err
	}
	fmt.Print(tableHead(contenders))
	for _, name := range names {
		path := filepath.Join(folder, "tok", name, "tokenizer.json")
		for _, kind := range kinds {
			row := make([]figures, len(contenders))
			all := make([][]figures, len(contenders))
			for round := range rounds {
				for i, library := range contenders {
					if library == "tokenizers" && round > 0 {
						continue // it is a hundred times as slow, and takes nearly all of the time
					}
					command := exec.CommandContext(ctx, self, "-child", path, kind.file)
					if library != "signalbox" {
						command = exec.CommandContext(ctx, python, script, library, path, kind.file)
					}
					f, err := figuresOf(command)
					if err != nil {
						return fmt.Errorf("%s, %s, %s: %w", library, name, kind.name, err)
					}
					all[i] = append(all[i], f)
				}
			}
			for i := range contenders {
				row[i] = median(all[i])
			}
			fmt.Print(tableRow(name, kind, contenders, row))
		}
	}
	return nil
}

func figuresOf(command *exec.Cmd) (f figures, err error) {
	command.Env = append(os.Environ(), "GOMAXPROCS=1", "RAYON_NUM_THREADS=1", "TOKENIZERS_PARALLELISM=false", "HF_HUB_OFFLINE=1")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(out, &f)
}

// median takes the middle of each figure by itself.
func median(list []figures) figures {
	middle := func(of func(figures) float64) float64 {
		values := make([]float64, len(list))
		for i, f := range list {
			values[i] = of(f)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	return figures{Load: middle(func(f figures) float64 { return f.Load }), Cold: middle(func(f figures) float64 { return f.Cold }),
		Warm: middle(func(f figures) float64 { return f.Warm }), Memory: middle(func(f figures) float64 { return f.Memory }),
		Sum: list[0].Sum, Tokens: list[0].Tokens}
}
