// Package settings declares everything an operator can set: each flag, environment variable, default, range and
// deprecated spelling is written down once, next to the field that carries the value. Parsing, provenance, help text,
// the configuration dump and docs/configuration.md are all derived from that one declaration.
//
// The package knows names, types and the rules between settings. It must not know how a setting is used: it imports
// no other room, and other rooms receive plain values (or one of the grouped structs) from the program that wires them.
//
// # How a value is found
//
// A flag beats an environment variable, which beats the default. After that, in this order: the --load-aware preset,
// the deprecated overlap-score weight, and the "router" section of the file named by --router-policy-config. Each of
// them is visible in [Settings.Origin], so that nobody has to guess why a value is what it is.
//
// Every mistake that can be found without the network is found here and reported together, with the spelling that
// the operator used, the value, and what would have been accepted.
//
// # Why a table of our own
//
// A struct-tag parser such as kong gives grouped help and environment variables, but not what this command line
// needs: --x/--no-x pairs whose old spellings are pairs too, several variables for one setting with a precedence
// between them, unambiguous prefixes as abbreviations, words that mean "unset", the origin of every value after the
// fact, settings that only a variable can set, and one source for the documentation. Wrapping it would have been more
// code than the table, and the table is ordinary Go: a pointer to the field, a default, a parser, the names.
//
// # Switching off what is not built
//
// [Unavailable] lists settings whose feature this build does not have. Asking for one of them stops the start.
package settings
