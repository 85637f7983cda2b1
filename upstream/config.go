package upstream

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Kind is the program that serves.
type Kind string

// The kinds. The zero value is found out by asking the server.
const (
	VLLM     Kind = "vllm"
	SGLang   Kind = "sglang"
	LlamaCpp Kind = "llamacpp"
	OpenAI   Kind = "openai"
)

// What a server can be asked for.
const (
	Chat        = "chat"
	Completions = "completions"
	Embeddings  = "embeddings"
)

// Config is what the operator says about a server. All but the URL can be left out. The names of members in files and in the query of
// a URL are those of the tags.
type Config struct {
	// URL is where the server is, without the "/v1" of its API.
	URL string `yaml:"url"`
	// Kind replaces what the server says about itself.
	Kind Kind `yaml:"kind"`
	// Model is the one of the server's models that is used, by the server's name; "" takes its first. Name is what clients call it;
	// "" is the server's name.
	Model string `yaml:"model"`
	Name  string `yaml:"name"`
	// Serves is what it can be asked for: chat, completions, embeddings, joined by "|"; "" is "chat|completions".
	Serves string `yaml:"serves"`
	// Tokenizer is the directory of the model's tokenizer and template, or a name that [Source] can locate. Prompts go to the server as
	// tokens where it is set.
	Tokenizer string `yaml:"tokenizer"`
	// Template is a chat template that replaces the one of the directory.
	Template string `yaml:"chat_template"`
	// ToolParser and ReasoningParser read what the model writes; they need a tokenizer.
	ToolParser      string `yaml:"tool_call_parser"`
	ReasoningParser string `yaml:"reasoning_parser"`
	// ContextLength is in tokens, BlockSize is the tokens of a KV-cache block, Blocks how many of them each rank has; 0 asks the server.
	ContextLength uint32 `yaml:"context_length"`
	BlockSize     uint32 `yaml:"block_size"`
	Blocks        uint64 `yaml:"blocks"`
	// Ranks is the number of data-parallel ranks behind the URL; 0 is 1.
	Ranks uint32 `yaml:"ranks"`
	// Events is where the first rank publishes its KV events ("tcp://host:port", or a port of the server's host), Replay where it tells
	// them again; each further rank uses the next port. "" for none.
	Events string `yaml:"kv_events"`
	Replay string `yaml:"kv_replay"`
	// KeyEnv is the variable that holds the server's API key; "" for none. The key itself is never part of a configuration.
	KeyEnv string `yaml:"api_key_env"`
}

// Key names a server among all: its URL, and the model where one is named, for a server may have several.
func (c *Config) Key() string {
	if c.Model == "" {
		return c.URL
	}
	return c.URL + "#" + c.Model
}

// Ask returns the kinds of use that the configuration names.
func (c *Config) Ask() []string {
	if c.Serves == "" {
		return []string{Chat, Completions}
	}
	return strings.FieldsFunc(c.Serves, func(r rune) bool { return r == '|' || r == ',' || r == ' ' })
}

// RankCount is the number of ranks; at least 1.
func (c *Config) RankCount() uint32 { return max(1, c.Ranks) }

// EventsOf returns where a rank publishes its events and tells them again.
func (c *Config) EventsOf(rank uint32) (events, replay string) {
	return nextPort(c.Events, rank), nextPort(c.Replay, rank)
}

func nextPort(endpoint string, by uint32) string {
	at := strings.LastIndexByte(endpoint, ':')
	if endpoint == "" || by == 0 || at < 0 {
		return endpoint
	}
	port, err := strconv.ParseUint(endpoint[at+1:], 10, 16)
	if err != nil {
		return endpoint
	}
	return endpoint[:at+1] + strconv.FormatUint(port+uint64(by), 10)
}

// parseWord reads a server from one word: its URL, with the other members in the query. It is not checked yet.
func parseWord(word string) (Config, error) {
	var c Config
	parsed, err := url.Parse(word)
	if err != nil {
		return c, fmt.Errorf("%q is no URL: want http://host:port", word)
	}
	query := parsed.Query()
	parsed.RawQuery = ""
	c.URL = parsed.String()
	for name, values := range query {
		if name == "url" || len(values) != 1 {
			return c, fmt.Errorf("%q: option %q must stand there once, and not be the URL", word, name)
		}
		if err := c.set(name, values[0]); err != nil {
			return c, fmt.Errorf("%q: %w", word, err)
		}
	}
	return c, nil
}

// optionNames are the names of all members, in their order.
var optionNames = func() []string {
	var names []string
	for field := range reflect.TypeFor[Config]().Fields() {
		names = append(names, field.Tag.Get("yaml"))
	}
	return names
}()

// set gives a member the value of a text.
func (c *Config) set(name, text string) error {
	index := slices.Index(optionNames, name)
	if index < 0 {
		return fmt.Errorf("unknown option %q; known are %s", name, strings.Join(optionNames[1:], ", "))
	}
	switch field := reflect.ValueOf(c).Elem().Field(index); field.Kind() {
	case reflect.String:
		field.SetString(text)
	default:
		number, err := strconv.ParseUint(text, 10, field.Type().Bits())
		if err != nil {
			return fmt.Errorf("%s is %q; want a whole number", name, text)
		}
		field.SetUint(number)
	}
	return nil
}

// maxRanks bounds the ranks behind one URL.
const maxRanks = 1024

// complete checks the members and writes them in one form.
func (c *Config) complete() error {
	parsed, err := url.Parse(c.URL)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" {
		return fmt.Errorf("url is %q; want http://host:port or https://host:port", c.URL)
	}
	if parsed.RawQuery != "" || parsed.Fragment != "" || parsed.User != nil {
		return fmt.Errorf("url is %q; it must have no query, fragment or user (a key comes from api_key_env)", parsed.Redacted())
	}
	parsed.Path = strings.TrimSuffix(strings.TrimRight(parsed.Path, "/"), "/v1") // as clients of the API write it
	c.URL = parsed.String()
	if !slices.Contains([]Kind{"", VLLM, SGLang, LlamaCpp, OpenAI}, c.Kind) {
		return fmt.Errorf("kind is %q; want vllm, sglang, llamacpp or openai, or nothing to find out", c.Kind)
	}
	for _, use := range c.Ask() {
		if !slices.Contains([]string{Chat, Completions, Embeddings}, use) {
			return fmt.Errorf("serves is %q; want chat, completions and embeddings, joined by |", c.Serves)
		}
		if use == Embeddings && c.Tokenizer != "" {
			return fmt.Errorf("serves is %q with a tokenizer; embeddings are asked for as text: leave tokenizer out", c.Serves)
		}
	}
	if c.RankCount() > maxRanks {
		return fmt.Errorf("ranks is %d; want at most %d", c.Ranks, maxRanks)
	}
	if c.Events, err = c.endpoint("kv_events", c.Events, parsed.Hostname()); err != nil {
		return err
	}
	if c.Replay, err = c.endpoint("kv_replay", c.Replay, parsed.Hostname()); err != nil {
		return err
	}
	return c.checkFiles()
}

func (c *Config) checkFiles() error {
	switch {
	case c.Replay != "" && c.Events == "":
		return fmt.Errorf("kv_replay is %q without kv_events", c.Replay)
	case c.Events != "" && c.Tokenizer == "":
		return fmt.Errorf("kv_events is %q without a tokenizer: blocks can only be known where prompts are tokenised here", c.Events)
	case c.ToolParser+c.ReasoningParser+c.Template != "" && c.Tokenizer == "":
		return fmt.Errorf("tool_call_parser, reasoning_parser and chat_template need a tokenizer; without one the server does that itself")
	}
	if c.Tokenizer != "" {
		if info, err := os.Stat(c.Tokenizer); err != nil || !info.IsDir() {
			return fmt.Errorf("tokenizer is %q; want the directory of a model's tokenizer files, or the name of a repository in the local cache of the hub", c.Tokenizer)
		}
		absolute, err := filepath.Abs(c.Tokenizer)
		if err != nil {
			return fmt.Errorf("tokenizer is %q: %w", c.Tokenizer, err)
		}
		c.Tokenizer = absolute
	}
	if c.KeyEnv != "" && os.Getenv(c.KeyEnv) == "" {
		return fmt.Errorf("api_key_env is %q; that variable is not set", c.KeyEnv)
	}
	return nil
}

// endpoint completes where events are.
func (c *Config) endpoint(name, text, host string) (string, error) {
	if text == "" {
		return "", nil
	}
	if port, err := strconv.ParseUint(text, 10, 16); err == nil && port > 0 {
		text = "tcp://" + net.JoinHostPort(host, text)
	}
	address, ok := strings.CutPrefix(text, "tcp://")
	_, port, err := net.SplitHostPort(address)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if !ok || err != nil || portErr != nil || number == 0 || number+uint64(c.RankCount()-1) > 65535 {
		return "", fmt.Errorf("%s is %q; want tcp://host:port or a port of the server's host", name, text)
	}
	return text, nil
}

// inherit takes what c leaves out from the defaults.
func (c *Config) inherit(defaults *Config) {
	own, other := reflect.ValueOf(c).Elem(), reflect.ValueOf(defaults).Elem()
	for i := range own.NumField() {
		if own.Field(i).IsZero() {
			own.Field(i).Set(other.Field(i))
		}
	}
}

// Source is where servers are named.
type Source struct {
	// Words are one URL each, or several joined by commas; File is a YAML file, "" for none.
	Words []string
	File  string
	// Tokenizer is the one of servers that name none; "" is none. Locate finds the directory of a tokenizer that is named otherwise, as
	// by a repository; "" is not found.
	Tokenizer string
	Locate    func(name string) (directory string)
}

// Read returns the servers of a source. A URL that comes twice, with the same model or without any, is a mistake.
func (source Source) Read() ([]Config, error) {
	var all []Config
	known := make(map[string]bool)
	add := func(c Config, from string) error {
		if c.Tokenizer == "" && !slices.Contains(c.Ask(), Embeddings) {
			c.Tokenizer = source.Tokenizer
		}
		if _, err := os.Stat(c.Tokenizer); c.Tokenizer != "" && err != nil && source.Locate != nil {
			if found := source.Locate(c.Tokenizer); found != "" {
				c.Tokenizer = found
			}
		}
		if err := c.complete(); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		if known[c.Key()] {
			return fmt.Errorf("%s: %s is named twice; several models of one server need a model each", from, c.Key())
		}
		known[c.Key()] = true
		all = append(all, c)
		return nil
	}
	for _, word := range source.Words {
		for one := range strings.SplitSeq(word, ",") {
			if one = strings.TrimSpace(one); one == "" {
				continue
			}
			c, err := parseWord(one)
			if err == nil {
				err = add(c, strconv.Quote(one))
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if source.File == "" {
		return all, nil
	}
	listed, err := readFile(source.File)
	if err != nil {
		return nil, err
	}
	for i, c := range listed {
		if err := add(c, fmt.Sprintf("%s: servers[%d]", source.File, i)); err != nil {
			return nil, err
		}
	}
	return all, nil
}
