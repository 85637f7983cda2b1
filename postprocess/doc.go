// Package postprocess reads what a model wrote: it splits the text of an answer into reasoning, content and tool calls, while it comes.
// The formats are in the packages reasoning and toolcall, which can be used on their own; a [Stage] runs both for one answer as a model's
// card and a request ask for it. However the text is cut into pieces, the result is the same.
//
// Nothing here knows of HTTP or of workers. Memory is bounded: what is held back for one answer is at most a block of calls, and blocks
// have a limit beyond which they are shown as text. Time is linear in the text. No input makes a parser panic.
package postprocess
