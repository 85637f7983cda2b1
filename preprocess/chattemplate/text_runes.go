package chattemplate

import (
	"fmt"
	"unicode/utf8"
)

// runeCount is the number of characters of a text.
func runeCount(s string) int { return utf8.RuneCountInString(s) }

// escapeRune is how Python spells a character that it does not print.
func escapeRune(r rune) string {
	switch {
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
