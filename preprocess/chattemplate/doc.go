// Package chattemplate renders the Jinja2 chat templates that language models ship with, byte for byte as Python's jinja2
// does in the environment that Hugging Face transformers sets up: trim_blocks and lstrip_blocks on, no autoescape, the
// immutable sandbox, loop controls, the generation tag, tojson without HTML escaping, raise_exception and strftime_now.
//
// A template is compiled once into a tree of operations whose variables are numbered slots, and may then be rendered by
// any number of goroutines at once. Values keep the order of their keys and the exactness of their numbers; ParseJSON reads
// them straight from the bytes of a request.
//
// A template is foreign code and its input is a stranger's text, so both are bounded: see Limits. Whatever they do, a
// render ends with a text or an error (RaisedError, RenderError, LimitError), never with a panic.
//
// The package knows nothing of messages, tools or models; it only renders what it is given.
package chattemplate
