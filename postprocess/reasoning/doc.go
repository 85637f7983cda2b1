// Package reasoning separates what a model thinks from what it answers, in the formats in which models mark that.
//
// A [Parser] is made for one answer by the name of its format and is fed with the text as it comes. A marker that is cut off at the end
// of what has come is held back until it is decided. The result does not depend on where the text is cut.
package reasoning
