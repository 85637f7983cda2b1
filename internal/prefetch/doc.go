// Package prefetch tells the processor what will be read soon. Whoever has to read from many places that are far asks for all of them first, so
// that it waits for all at once. An ordinary read would do as well, but what comes after it waits for it sooner or later. On processors that
// cannot be told, it does nothing.
package prefetch
