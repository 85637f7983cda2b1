package settings

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

// load fills the table's fields from a command line and an environment ("NAME=value" texts, as os.Environ gives
// them). It returns ErrHelp or ErrVersion alone when the command line asks for them.
func (t *table) load(args, environ []string) ([]Warning, error) {
	assignments, asked, problems := t.arguments(args)
	switch asked {
	case toHelp:
		return nil, ErrHelp
	case toVersion:
		return nil, ErrVersion
	}
	variables := index(environ)
	warnings := t.misspelled(variables)

	bySetting := make(map[*setting][]assignment)
	for _, a := range assignments {
		bySetting[a.setting] = append(bySetting[a.setting], a)
	}
	for _, s := range t.settings {
		notes, wrong := s.take(bySetting[s], variables)
		warnings = append(warnings, notes...)
		problems = append(problems, wrong...)
	}
	problems = append(problems, t.unavailable()...)
	return warnings, errors.Join(problems...)
}

// index makes variables searchable. Of a repeated name the first counts, as for the C library.
func index(environ []string) map[string]string {
	variables := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, found := strings.Cut(entry, "=")
		if !found || name == "" {
			continue
		}
		if _, seen := variables[name]; !seen {
			variables[name] = value
		}
	}
	return variables
}

// take fills one setting from its flags or, without any, from its variables.
func (s *setting) take(flags []assignment, variables map[string]string) ([]Warning, []error) {
	if s.ignored != "" {
		return s.takeIgnored(flags, variables)
	}
	warnings := s.shadowed(flags, variables)
	if _, collects := s.value.(appender); !collects && len(flags) > 0 {
		notes, wrong := s.takeFlags(flags)
		return append(warnings, notes...), wrong
	}
	var problems []error
	if name, text, found := s.variable(variables); found {
		s.origin, s.given = Origin{Kind: FromEnvironment, Name: name}, text
		note, err := s.value.set(text)
		if err != nil {
			problems = append(problems, s.wrong(text, err))
		}
		if note != "" {
			warnings = append(warnings, s.replaced(text, note))
		}
		for _, old := range s.oldEnv {
			if name == old {
				warnings = append(warnings, Warning{Name: name,
					Text: fmt.Sprintf("%s is deprecated; use %s", name, s.modernVariable())})
			}
		}
	}
	if len(flags) > 0 {
		// A list: flags add to what the variable gave.
		notes, wrong := s.takeFlags(flags)
		return append(warnings, notes...), append(problems, wrong...)
	}
	return warnings, problems
}

// takeFlags applies the flags of one setting in order, so that the last one stays.
func (s *setting) takeFlags(flags []assignment) (warnings []Warning, problems []error) {
	for _, a := range flags {
		s.origin, s.given = Origin{Kind: FromFlag, Name: a.typed}, a.text
		if a.spelling != flags[0].spelling && !s.isOldFlag(a.spelling) && !s.isOldFlag(flags[0].spelling) {
			problems = append(problems, &RuleError{Settings: []string{s.name},
				Problem: fmt.Sprintf("%s and %s are two spellings of one setting: use one of them", flags[0].typed, a.typed)})
		}
		if s.isOldFlag(a.spelling) {
			warnings = append(warnings, s.oldSpelling(a))
		}
		if v, ok := s.value.(switcher); ok {
			v.turn(a.on)
			s.given = fmt.Sprint(a.on)
			continue
		}
		if v, ok := s.value.(appender); ok {
			if err := v.extend(a.text); err != nil {
				problems = append(problems, s.wrong(a.text, err))
			}
			continue
		}
		note, err := s.value.set(a.text)
		if err != nil {
			problems = append(problems, s.wrong(a.text, err))
		}
		if note != "" {
			warnings = append(warnings, s.replaced(a.text, note))
		}
	}
	return warnings, problems
}

// takeIgnored accepts a setting that has no effect any more. A flag's value is still checked; a variable's is not.
func (s *setting) takeIgnored(flags []assignment, variables map[string]string) ([]Warning, []error) {
	var warnings []Warning
	if name, text, found := s.variable(variables); found {
		s.origin, s.given = Origin{Kind: FromEnvironment, Name: name}, text
		// The value has no effect, so a wrong one does no harm.
		_, _ = s.value.set(text)
		warnings = append(warnings, Warning{Name: name, Text: name + " is accepted and ignored: " + s.ignored})
	}
	_, problems := s.takeFlags(flags)
	for _, a := range flags {
		warnings = append(warnings, Warning{Name: a.typed, Text: a.typed + " is accepted and ignored: " + s.ignored})
	}
	return warnings, problems
}

// variable finds the variable that counts for a setting.
func (s *setting) variable(variables map[string]string) (name, text string, found bool) {
	for _, group := range [][]string{s.env, s.oldEnv} {
		for _, name := range group {
			if text, ok := variables[name]; ok {
				return name, text, true
			}
		}
	}
	return "", "", false
}

// shadowed warns about variables that are set but have no effect because another variable of the same setting counts
// and says something else. A variable under a flag is ordinary and draws no warning.
func (s *setting) shadowed(flags []assignment, variables map[string]string) []Warning {
	counts, text, found := s.variable(variables)
	if !found || len(flags) > 0 {
		return nil
	}
	var warnings []Warning
	for _, group := range [][]string{s.env, s.oldEnv} {
		for _, name := range group {
			if other, ok := variables[name]; ok && name != counts && other != text {
				warnings = append(warnings, Warning{Name: name, Text: fmt.Sprintf("%s is ignored because %s is set too", name, counts)})
			}
		}
	}
	return warnings
}

func (s *setting) oldSpelling(a assignment) Warning {
	modern := "--" + s.flag
	if s.isSwitch() && !a.on {
		modern = "--no-" + s.flag
	}
	return Warning{Name: a.typed, Text: fmt.Sprintf("%s is deprecated; use %s", a.typed, modern)}
}

// modernVariable is what to use instead of a deprecated variable.
func (s *setting) modernVariable() string {
	if len(s.env) > 0 {
		return s.env[0]
	}
	return s.label()
}

func (s *setting) replaced(text, note string) Warning {
	return Warning{Name: s.origin.Name, Text: fmt.Sprintf("%s: %q %s", s.spelled(), s.printable(text), note)}
}

func (s *setting) wrong(text string, err error) error {
	return &ValueError{Setting: s.name, Spelled: s.spelled(), Value: s.printable(text), Problem: err.Error()}
}

// longestQuoted is how much of a wrong value a message repeats, in bytes.
const longestQuoted = 200

// printable is a value fit for a message: secrets hidden, long texts cut.
func (s *setting) printable(text string) string {
	if s.secret && text != "" {
		return redacted
	}
	if len(text) > longestQuoted {
		return strings.ToValidUTF8(text[:longestQuoted], "") + "..."
	}
	return text
}

// misspelled warns about variables that nobody reads and that are within two letters of one that somebody does.
func (t *table) misspelled(variables map[string]string) []Warning {
	known := knownVariables()
	var candidates, strangers []string
	for name := range known {
		candidates = append(candidates, name)
	}
	for name := range variables {
		if strings.HasPrefix(name, "DYN_") && !known[name] {
			strangers = append(strangers, name)
		}
	}
	sort.Strings(candidates)
	sort.Strings(strangers)
	var warnings []Warning
	for _, name := range strangers {
		if meant := nearest(name, candidates, 2); meant != "" {
			warnings = append(warnings, Warning{Name: name, Text: fmt.Sprintf("environment variable %s is unknown and ignored: did you mean %s?", name, meant)})
		}
	}
	return warnings
}

// knownVariables is every variable that any command reads.
func knownVariables() map[string]bool {
	known := make(map[string]bool)
	for _, t := range allTables() {
		for _, s := range t.settings {
			for _, group := range [][]string{s.env, s.oldEnv} {
				for _, name := range group {
					known[name] = true
				}
			}
		}
	}
	return known
}
