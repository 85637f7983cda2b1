package settings

import (
	"fmt"
	"sort"
	"strings"
)

// assignment is one flag on the command line with its value.
type assignment struct {
	setting *setting
	// typed is the flag as the operator wrote it, abbreviations spelled out: "--no-kv-events".
	typed string
	// spelling is the long name without dashes and negation, to tell old spellings and synonyms apart.
	spelling string
	// text is the value; on is the value of a switch instead.
	text string
	on   bool
}

// request is what a command line asks for besides settings.
type request int

const (
	toRun request = iota
	toHelp
	toVersion
)

// target is what a long flag stands for.
type target struct {
	setting  *setting
	spelling string
	negated  bool
	request  request
}

// flags maps every accepted long flag, without dashes, to what it stands for.
func (t *table) flags() map[string]target {
	flags := map[string]target{"help": {request: toHelp}, "version": {request: toVersion}}
	for _, s := range t.settings {
		for _, spelling := range s.spellings() {
			flags[spelling] = target{setting: s, spelling: spelling}
			if s.isSwitch() {
				flags["no-"+spelling] = target{setting: s, spelling: spelling, negated: true}
			}
		}
	}
	return flags
}

// arguments reads a command line. All mistakes are reported, not only the first.
func (t *table) arguments(args []string) (assignments []assignment, asked request, problems []error) {
	flags := t.flags()
	for i := 0; i < len(args); i++ {
		argument := args[i]
		name, inline, hasInline := strings.Cut(argument, "=")
		found, typed, err := t.lookUp(flags, name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if found.request != toRun {
			// The first of --help and --version wins, whatever else is wrong on the line.
			return nil, found.request, nil
		}
		a := assignment{setting: found.setting, typed: typed, spelling: found.spelling}
		switch {
		case found.setting.isSwitch():
			if hasInline {
				problems = append(problems, &ValueError{Spelled: typed, Value: inline,
					Problem: fmt.Sprintf("takes no value: write --%s or --no-%s", found.spelling, found.spelling)})
				continue
			}
			a.on = !found.negated
		case hasInline:
			a.text = inline
		case i+1 < len(args) && isValue(args[i+1]):
			i++
			a.text = args[i]
		default:
			problems = append(problems, &ValueError{Spelled: typed, Missing: true,
				Problem: fmt.Sprintf("needs a value: %s (a value that starts with - is written %s=VALUE)", found.setting.value.allowed(), typed)})
			continue
		}
		assignments = append(assignments, a)
	}
	return assignments, toRun, problems
}

// lookUp finds a flag by its full name, its letter, or a beginning that only one flag has.
func (t *table) lookUp(flags map[string]target, name string) (target, string, error) {
	if len(name) == 2 && name[0] == '-' && name[1] != '-' {
		if name == "-h" {
			return target{request: toHelp}, name, nil
		}
		for _, s := range t.settings {
			if s.short != 0 && s.short == name[1] {
				return target{setting: s, spelling: s.flag}, name, nil
			}
		}
	}
	long, isLong := strings.CutPrefix(name, "--")
	if !isLong || long == "" {
		return target{}, "", &UnknownFlagError{Argument: name, Nearest: t.nearestFlag(flags, name)}
	}
	if found, ok := flags[long]; ok {
		return found, name, nil
	}
	var matches []string
	for spelling := range flags {
		if strings.HasPrefix(spelling, long) {
			matches = append(matches, spelling)
		}
	}
	sort.Strings(matches)
	switch len(matches) {
	case 0:
		return target{}, "", &UnknownFlagError{Argument: name, Nearest: t.nearestFlag(flags, name)}
	case 1:
		return flags[matches[0]], "--" + matches[0], nil
	}
	return target{}, "", &AmbiguousFlagError{Argument: name, Matches: matches}
}

// isValue reports whether the argument after a flag is that flag's value: everything that is not a flag itself.
// Negative numbers and texts with spaces are values although they may start with a dash.
func isValue(argument string) bool {
	if !strings.HasPrefix(argument, "-") || argument == "-" || strings.Contains(argument, " ") {
		return true
	}
	_, isNumber := readNumber(argument)
	return isNumber
}

// nearestFlag returns the accepted flag, with dashes, that the unknown one was probably meant to be, or "".
func (t *table) nearestFlag(flags map[string]target, name string) string {
	wanted := strings.TrimLeft(name, "-")
	candidates := make([]string, 0, len(flags))
	for spelling := range flags {
		candidates = append(candidates, spelling)
	}
	sort.Strings(candidates)
	if best := nearest(strings.ReplaceAll(strings.ToLower(wanted), "_", "-"), candidates, len(wanted)/3); best != "" {
		return "--" + best
	}
	return ""
}
