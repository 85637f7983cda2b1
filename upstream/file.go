package upstream

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
)

// file is a list of servers. Defaults stand for what a server leaves out.
type file struct {
	Defaults Config   `yaml:"defaults"`
	Servers  []Config `yaml:"servers"`
}

// maxFile bounds a file, in bytes.
const maxFile = 1 << 20

// readFile reads servers from a YAML file: a list "servers" of what [Config] has, and "defaults" for all of them. A name that is not
// known is a mistake.
func readFile(name string) ([]Config, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	servers, err := parseFile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return servers, nil
}

func parseFile(text []byte) ([]Config, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%d bytes; want at most %d", len(text), maxFile)
	}
	var f file
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&f); err != nil && err != io.EOF {
		return nil, fmt.Errorf("want defaults and servers, with %s: %s", strings.Join(optionNames, ", "), strings.TrimSpace(err.Error()))
	}
	if f.Defaults.URL != "" {
		return nil, fmt.Errorf("defaults.url is %q; a URL belongs to one server", f.Defaults.URL)
	}
	if len(f.Servers) == 0 {
		return nil, fmt.Errorf("servers is empty; want at least one, with its url")
	}
	for i := range f.Servers {
		f.Servers[i].inherit(&f.Defaults)
	}
	return f.Servers, nil
}
