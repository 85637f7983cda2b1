package settings

import (
	"fmt"
)

// spec is the part of a declaration that is words: how a setting is called and described.
type spec struct {
	// name is the setting's key in the configuration dump and in [Settings.Origin].
	name string
	// flag is the long flag without dashes; empty for a setting that only a variable can set.
	flag string
	// short is the one-letter flag without dash, or 0.
	short byte
	// oldFlags are deprecated long spellings. They warn, and negate like the flag itself when it is a switch.
	oldFlags []string
	// synonyms are equal long spellings: no warning, but two different spellings at once are refused.
	synonyms []string
	// env are the variables in order of precedence; empty for a setting that only a flag can set.
	env []string
	// oldEnv are deprecated variables, looked at after env. They warn.
	oldEnv []string
	// help is one or two sentences: what the setting does and in which unit.
	help string
	// secret keeps the value out of dumps and messages.
	secret bool
	// hidden keeps the setting out of --help; the documentation still has it, as deprecated.
	hidden bool
	// ignored is the advice given when a setting is accepted without effect; empty for all that have one.
	ignored string
}

// setting is one declared setting: its words, its group, and the field that it fills.
type setting struct {
	spec
	group  string
	value  value
	origin Origin
	// given is the text that the value was read from, for the messages of rules between settings; empty for a default.
	given string
}

// OriginKind says which kind of place a value came from.
type OriginKind int

// The places that a value can come from, weakest first.
const (
	FromDefault OriginKind = iota
	FromEnvironment
	FromFlag
	FromPreset
	FromPolicyFile
)

// Origin tells where the value of a setting came from.
type Origin struct {
	Kind OriginKind
	// Name is the variable as found ("DYN_HTTP_PORT"), the flag as typed ("--http-port"), the preset ("--load-aware") or
	// the path inside the policy file ("policy.yaml: router.use_kv_events"); empty for a default.
	Name string
}

// String gives the origin in the form used by the configuration dump, for example "env DYN_HTTP_PORT".
func (o Origin) String() string {
	switch o.Kind {
	case FromEnvironment:
		return "env " + o.Name
	case FromFlag:
		return "flag " + o.Name
	case FromPreset:
		return "preset " + o.Name
	case FromPolicyFile:
		return "file " + o.Name
	default:
		return "default"
	}
}

// Warning is something the operator should know and that does not stop the start.
type Warning struct {
	// Name is the flag ("--kv-events") or variable ("DYN_OVERLAP_SCORE_WEIGHT") that the warning is about.
	Name string
	// Text is the whole message, one sentence, the name included.
	Text string
}

// String returns the message.
func (w Warning) String() string { return w.Text }

// isSwitch reports whether the setting is a --x/--no-x pair.
func (s *setting) isSwitch() bool {
	_, ok := s.value.(switcher)
	return ok
}

// label is how messages call the setting when nobody spelled it: the flag if there is one, else the variable.
func (s *setting) label() string {
	if s.flag != "" {
		return "--" + s.flag
	}
	if len(s.env) > 0 {
		return s.env[0]
	}
	return s.name
}

// spelled is how messages call the setting together with where its value came from.
func (s *setting) spelled() string {
	switch s.origin.Kind {
	case FromFlag, FromPreset:
		return s.origin.Name
	case FromEnvironment:
		if s.flag != "" {
			return fmt.Sprintf("%s (environment variable %s)", s.label(), s.origin.Name)
		}
		return "environment variable " + s.origin.Name
	case FromPolicyFile:
		return fmt.Sprintf("%s (%s)", s.label(), s.origin.Name)
	default:
		return s.label()
	}
}

// spellings lists every long flag of the setting without dashes, negations left out.
func (s *setting) spellings() []string {
	if s.flag == "" {
		return nil
	}
	all := append([]string{s.flag}, s.synonyms...)
	return append(all, s.oldFlags...)
}

// isOldFlag reports whether a long spelling (no dashes, no negation) is a deprecated one.
func (s *setting) isOldFlag(spelling string) bool {
	for _, old := range s.oldFlags {
		if spelling == old {
			return true
		}
	}
	return false
}

// table is the ordered list of the settings of one command, bound to the struct that they fill.
type table struct {
	// command is the subcommand that the table belongs to, as typed after the program's name.
	command  string
	group    string
	settings []*setting
	byName   map[string]*setting
}

func newTable(command string) *table {
	return &table{command: command, byName: make(map[string]*setting)}
}

// in starts a group: settings added from here on belong to it.
func (t *table) in(group string) { t.group = group }

// add declares one setting. Declaring a name twice is a mistake in this package, which a test finds.
func (t *table) add(v value, words spec) {
	s := &setting{spec: words, group: t.group, value: v}
	v.reset()
	t.settings = append(t.settings, s)
	t.byName[words.name] = s
}

// originOf looks the origin of a setting up; an undeclared name has none.
func (t *table) originOf(name string) (Origin, bool) {
	s, ok := t.byName[name]
	if !ok {
		return Origin{}, false
	}
	return s.origin, true
}

// override sets a value that neither a flag nor a variable gave, and records why it is what it is.
func (t *table) override(name, text string, origin Origin) error {
	s := t.byName[name]
	if _, err := s.value.set(text); err != nil {
		return err
	}
	s.origin, s.given = origin, text
	return nil
}

// names joins variable names into the slice that a spec wants; it only makes declarations shorter.
func names(all ...string) []string { return all }
