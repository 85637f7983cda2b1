package chattemplate

import "testing"

// TestNumbersOf64Bits reads numbers without limits and within 64 bits, and writes them in both spellings.
func TestNumbersOf64Bits(t *testing.T) {
	for _, c := range []struct{ text, unlimited, limited, short string }{
		{`0`, `0`, `0`, `0`}, {`-0`, `0`, `-0.0`, `-0.0`}, {`-0.0`, `-0.0`, `-0.0`, `-0.0`}, {`1E5`, `100000.0`, `100000.0`, `100000.0`}, {`0.1000`, `0.1`, `0.1`, `0.1`},
		{`1e-5`, `1e-05`, `1e-05`, `0.00001`}, {`1e-7`, `1e-07`, `1e-07`, `1e-7`}, {`1e15`, `1000000000000000.0`, `1000000000000000.0`, `1000000000000000.0`},
		{`1e16`, `1e+16`, `1e+16`, `1e+16`}, {`5e-324`, `5e-324`, `5e-324`, `5e-324`},
		{`18446744073709551615`, `18446744073709551615`, `18446744073709551615`, `18446744073709551615`},
		{`18446744073709551616`, `18446744073709551616`, `1.8446744073709552e+19`, `1.8446744073709552e+19`},
		{`-9223372036854775808`, `-9223372036854775808`, `-9223372036854775808`, `-9223372036854775808`},
		{`-9223372036854775809`, `-9223372036854775809`, `-9.223372036854776e+18`, `-9.223372036854776e+18`},
		{`[1e400]`, `[Infinity]`, ``, ``},
	} {
		unlimited, err := ParseJSONString(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := unlimited.JSON(); err != nil || got != c.unlimited {
			t.Errorf("%s: %q, %v; want %q", c.text, got, err, c.unlimited)
		}
		limited, err := ParseJSON64(c.text)
		if (err != nil) != (c.limited == "") {
			t.Errorf("%s within 64 bits: %v", c.text, err)
		}
		if err != nil {
			continue
		}
		if got, err := limited.JSON(); err != nil || got != c.limited {
			t.Errorf("%s within 64 bits: %q, %v; want %q", c.text, got, err, c.limited)
		}
		if got, err := limited.ShortJSON(); err != nil || got != c.short {
			t.Errorf("%s within 64 bits, short: %q, %v; want %q", c.text, got, err, c.short)
		}
	}
}
