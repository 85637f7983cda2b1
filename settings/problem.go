package settings

import (
	"errors"
	"fmt"
	"strings"
)

// ErrHelp is returned when the command line asks for --help: print the command's help and exit with success.
var ErrHelp = errors.New("help requested")

// ErrVersion is returned when the command line asks for --version.
var ErrVersion = errors.New("version requested")

// ValueError says that a setting was given a value that it does not take.
type ValueError struct {
	// Setting is the setting's key in the dump; empty when the flag was used in a wrong way.
	Setting string
	// Spelled is the flag as typed, or the variable, and for a variable the flag that it stands for.
	Spelled string
	// Value is the value as given; Missing says that there was none.
	Value   string
	Missing bool
	// Problem is what is wrong and what would be right, for example "must be a whole number from 0 to 65535".
	Problem string
}

// Error names the setting, the value and what is allowed.
func (e *ValueError) Error() string {
	if e.Missing {
		return fmt.Sprintf("%s %s", e.Spelled, e.Problem)
	}
	return fmt.Sprintf("%s: %q %s", e.Spelled, e.Value, e.Problem)
}

// UnknownFlagError says that an argument is no flag of the command.
type UnknownFlagError struct {
	Argument string
	// Nearest is the flag that was probably meant, with dashes, or "".
	Nearest string
}

// Error names the argument and the flag that was probably meant.
func (e *UnknownFlagError) Error() string {
	if e.Nearest == "" {
		return fmt.Sprintf("unknown argument %q: --help lists the flags", e.Argument)
	}
	return fmt.Sprintf("unknown argument %q: did you mean %s?", e.Argument, e.Nearest)
}

// AmbiguousFlagError says that an abbreviated flag is the beginning of several.
type AmbiguousFlagError struct {
	Argument string
	// Matches are the long flags, without dashes, in alphabetical order.
	Matches []string
}

// Error names the flags that the abbreviation could be.
func (e *AmbiguousFlagError) Error() string {
	shown, more := e.Matches, ""
	if len(shown) > 6 {
		shown, more = shown[:6], " and others"
	}
	return fmt.Sprintf("ambiguous flag %q: could be --%s%s", e.Argument, strings.Join(shown, ", --"), more)
}

// RuleError says that settings which are right by themselves do not go together.
type RuleError struct {
	// Settings are the keys of the settings involved, the one at fault first.
	Settings []string
	Problem  string
}

// Error names the settings with their values and what would be right.
func (e *RuleError) Error() string { return e.Problem }

// UnavailableError says that a setting asks for something that this build does not have yet.
type UnavailableError struct {
	Setting string
	Spelled string
	Value   string
	Reason  string
}

// Error names the setting, its value and what is missing.
func (e *UnavailableError) Error() string {
	text := fmt.Sprintf("%s: %q is not available yet", e.Spelled, e.Value)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}
