// Package toolcall reads tool calls in the formats in which models write them.
//
// A [Parser] is made for one answer by the name of its format and is fed with the text as it comes. What is certainly content is
// passed on at once, a word that may become markup is held back until it is decided, and a call is passed on when it is complete. The
// result does not depend on where the text is cut.
//
// What formats do with text around calls, with calls that are broken or cut off, and with the types of arguments follows the NVIDIA
// Dynamo frontend for an answer that it sees whole.
package toolcall
